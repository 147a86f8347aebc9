"""REINFORCE: raises or lowers the probability of the captioner's own captions according to their rewards.

`Reinforce.step` runs in this order: captions, rewards and baselines (`reward_terms`, `baselines`), advantages, loss,
backward.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import torch
from pydantic import Field, model_validator

from tellapart.models import collectives, ranks
from tellapart.models.decoding import Decoding
from tellapart.models.protocols import CaptionerLike
from tellapart.models.training_mode import in_mode
from tellapart.objectives.base import ObjectiveOptions, objective
from tellapart.objectives.baselines import build_baseline, caption_means
from tellapart.objectives.caption_log_probs import caption_log_probs, token_log_probs, token_weights
from tellapart.objectives.detail import DetailLevel, Levels, evenly, level_contradictions, price_list
from tellapart.objectives.exploration import Exploration
from tellapart.objectives.max_at_k import MaxAtK, max_at_k
from tellapart.objectives.reward_terms import RewardTerm, compute_reward, most_words, reward_logs, reward_minus_baseline
from tellapart.objectives.set_quality import SetQuality
from tellapart.rewards.base import REWARDS, BaselineName, PluginRewardOptions, RewardOptions, build_reward
from tellapart.rewards.retrieval import SelfRetrieval
from tellapart.rewards.run_parts import RunParts
from tellapart.types import Batch, Loss, Rollout, StepContext
from tellapart.utils.messages import say
from tellapart.utils.option_tables import option_tables
from tellapart.utils.rng import ItemSeeds

if TYPE_CHECKING:
    RewardTable = RewardOptions
else:
    TABLES = option_tables(REWARDS.entries(broken=say), RewardOptions, PluginRewardOptions)
    RewardTable = Annotated[Union[TABLES], Field(discriminator="kind")]  # noqa: UP007

EPSILON = 1e-4  # added to standard deviations before dividing by them


class Reinforce:
    """Policy gradient on weighted rewards (paper 3, section 3 and B.1; paper 2, section 4.1; paper 4, eq. 11).

    The loss is the mean over captions of −advantage · log p(caption), where log p is the sum of the log-probabilities
    of the caption's tokens, normalized according to ``cfg.length_normalization``.

    terms: the rewards with their baselines and weights.
    cfg: the options.
    start: the frozen captioner for the KL term; required if ``cfg.kl`` is not 0.
    """

    shares_batch = True

    @objective("REINFORCE", help="Policy gradient (REINFORCE) on rewards such as self-retrieval and CIDEr-D.", needs=())
    class Config(ObjectiveOptions):
        """Policy gradient on rewards. The defaults follow DiscriTune: self-retrieval, greedy captions, running mean."""

        kind: Literal["reinforce"] = "reinforce"
        rewards: tuple[RewardTable, ...] = Field((SelfRetrieval.Config(kind="self_retrieval"),), min_length=1)
        decoding: Decoding = Decoding(kind="greedy", max_tokens=30)
        baseline: BaselineName = "running_mean"
        length_normalization: Literal["length+1", "length", "words", "none"] = Field(
            "length+1",
            description="divisor of a caption's log-probability: length+1: number of words without the end token, plus "
            "one, at most decoding.max_tokens (DiscriTune); words: number of words (paper 2); length: number of "
            "tokens; none: no normalization",
        )
        dropout_in_rollout: bool = True
        exploration: Exploration | None = Field(None, description="add paper 4's diversity term to the advantage")
        max_at_k: MaxAtK | None = Field(None, description="optimize the best of k captions for a picture (PKPO)")
        set_quality: SetQuality | None = Field(
            None, description="reward sets of captions that are both good and diverse (Darling, SetPO)"
        )
        whiten: bool = Field(
            False, description="normalize advantages over the batch to mean 0 and standard deviation 1"
        )
        group_normalization: bool = Field(
            False,
            description="divide each reward by its standard deviation over a picture's samples before adding up the "
            "rewards (GDPO)",
        )
        entropy: float = Field(0.0, ge=0, description="weight of the next-token entropy, in nats (SLL-ME)")
        entropy_reduction: Literal["mean", "sum"] = Field(
            "mean", description="entropy averaged over all tokens, or summed over each caption's tokens (paper 4)"
        )
        kl: float = Field(0.0, ge=0, description="weight of KL(captioner ‖ start) per token, in nats")
        kl_temperature: float | None = Field(
            None,
            gt=0,
            description="temperature of both distributions in the KL term; defaults to the decoding temperature",
        )
        detail: tuple[DetailLevel, ...] = Field(
            (),
            description="levels of detail, least detailed first, each with a prompt and a weight of the "
            "likelihood reward (speaker)",
        )

        @model_validator(mode="after")
        def fits_together(self) -> Reinforce.Config:
            for wrong in self.contradictions():
                raise ValueError(wrong)
            return self

        def contradictions(self) -> Iterator[str]:
            if self.detail:
                prices = [reward.weight for reward in self.rewards if reward.kind == "likelihood"]
                if len(prices) == 1:
                    yield from level_contradictions(self.detail, prices[0])
                else:
                    yield (
                        "detail sets the weight of the likelihood reward; expected exactly one such reward, but got "
                        f'{len(prices)}; add, for example, {{kind = "likelihood", weight = 0.75}}'
                    )
            if self.entropy_reduction != "mean" and not self.entropy:
                yield (
                    "entropy_reduction has no effect, because the weight of the entropy is 0; set, for example, "
                    "entropy = 0.01, or remove entropy_reduction"
                )
            if self.kl_temperature is not None and not self.kl:
                yield (
                    "kl_temperature has no effect, because kl, the weight of the KL term, is 0; set, for example, "
                    "kl = 0.1, or remove kl_temperature"
                )
            used = {self.baseline_of(reward) for reward in self.rewards}
            comparing = [f"baseline = '{baseline}'" for baseline in sorted(used & {"leave_one_out", "group_mean"})]
            comparing += [name for name in ("group_normalization", "set_quality", "exploration") if getattr(self, name)]
            for name in comparing if self.decoding.samples < 2 else ():
                yield (
                    f"{name} compares the samples of a picture; set decoding.kind = 'sample' and, for example, "
                    "decoding.samples = 5"
                )
            for name in ("exploration", "max_at_k", "set_quality"):
                if getattr(self, name) is not None and any(reward.per_token for reward in self.rewards):
                    yield (
                        f"{name} requires rewards per caption, but one of the rewards is per token; remove {name} or "
                        "that reward"
                    )
            if self.exploration is not None and self.set_quality is not None:
                yield ("exploration and set_quality both add diversity and cannot be combined; remove one of them")
            if self.max_at_k is not None and self.decoding.samples < max(2, self.max_at_k.largest):
                yield (
                    f"max_at_k requires at least {self.max_at_k.largest} samples per picture, but "
                    f"decoding.samples is {self.decoding.samples}; set, for example, decoding.kind = 'sample' "
                    f"and decoding.samples = {2 * self.max_at_k.largest}"
                )
            if self.set_quality is not None and self.set_quality.form == "product" and "greedy" in used:
                yield (
                    "baseline = 'greedy' uses the reward of a single caption, but set_quality compares several "
                    "captions; set baseline = 'leave_one_out'"
                )
            if self.exploration is not None and self.exploration.apart and self.decoding.samples == 2:
                yield (
                    f"exploration.baseline = '{self.exploration.baseline}' requires at least three samples "
                    "per picture, because two samples are always equally different; set decoding.samples = 5"
                )
            if "greedy" in used and self.decoding.kind == "greedy" and not self.dropout_in_rollout:
                yield (
                    "baseline = 'greedy' with greedy decoding subtracts each caption's own reward, so "
                    "nothing is learned; set decoding.kind = 'sample'"
                )

        def baseline_of(self, reward: RewardOptions) -> BaselineName:
            """Returns the reward's own baseline or, if the reward does not set one, the objective's baseline."""
            return reward.baseline or self.baseline

        def needs(self) -> tuple[str, ...]:
            return ("start",) if self.kl or any("start" in reward.needs() for reward in self.rewards) else ()

        @property
        def reward_options(self) -> tuple[RewardOptions, ...]:
            return self.rewards

        def levels(self) -> tuple[tuple[float, str], ...]:
            return evenly(self.detail)

        def build(self, parts: RunParts) -> Reinforce:
            names, several = [table.kind for table in self.rewards], len(self.detail) > 1
            terms = [
                RewardTerm(
                    build_reward(table, parts),
                    build_baseline(self.baseline_of(table)),
                    table.weight,
                    table.kind if names.count(table.kind) == 1 else f"{table.kind}{place}",
                    tuple(price_list(self.detail, table.weight)) if several and table.kind == "likelihood" else (),
                    None if table.within is None else most_words(parts.train_items, table.within),
                )
                for place, table in enumerate(self.rewards, 1)
            ]
            return Reinforce(terms, self, start=parts.start() if self.kl else None)

        def check(self) -> None:
            """Checks that the rewards can be built, before any model is loaded."""
            for table in self.rewards:
                table.check()

    def __init__(self, terms: Sequence[RewardTerm], cfg: Reinforce.Config, start: CaptionerLike | None = None) -> None:
        if cfg.kl and start is None:
            raise ValueError(
                f"kl is {cfg.kl}, but start, the initial model to compare with, is None; pass a captioner as start"
            )
        self.terms, self.cfg, self.start = list(terms), cfg, start
        self.levels = Levels([level.prompt for level in cfg.detail] or [""])
        self.greedy = Decoding(kind="greedy", max_tokens=cfg.decoding.max_tokens)
        self.self_critical = any(term.baseline == "greedy" for term in self.terms)
        # Score captions under the distribution from which they were sampled: at the sampling temperature (paper 2).
        self.temperature = cfg.decoding.temperature if cfg.decoding.kind == "sample" else 1.0
        self.kl_temperature = cfg.kl_temperature or self.temperature
        self.abstained: set[str] = set()  # names of rewards whose abstention has been reported to the user

    def __call__(self, learner: CaptionerLike, batch: Batch) -> Loss:
        losses: list[Loss] = []
        self.step(learner, batch, StepContext(losses.append, rank=ranks.index(), world_size=ranks.count()))
        return losses[0]

    def step(self, learner: CaptionerLike, batch: Batch, context: StepContext) -> None:
        """Runs a policy-gradient step: generates captions, computes rewards, and runs the backward pass.

        Each rank generates captions for its share of the pictures and computes their gradients. Rewards, baselines and
        advantages are computed for the whole batch and are the same on every rank.
        """
        cfg, share = self.cfg, context.share(len(batch.rows_B))
        mine = batch[share]
        parts = mine.split(context.micro_batches)
        # With a single micro-batch, encode once for both generation and the training pass.
        with context.autocast(), torch.set_grad_enabled(len(parts) == 1):
            views = [context.visual(part) for part in parts]
            visual = views[0] if len(views) == 1 else torch.cat(views)
            rollout = self.write(learner, visual, mine, cfg.decoding, dropout=cfg.dropout_in_rollout)
            greedy = self.write(learner, visual, mine, self.greedy, dropout=False) if self.self_critical else None
        if context.world_size > 1:
            pad = learner.tokenizer.pad_token_id or 0
            rollout = collectives.gather_rollout(rollout, pad)
            greedy = None if greedy is None else collectives.gather_rollout(greedy, pad)
        advantage, logs = self.advantages(rollout, greedy, batch)  # B×S, or B×S×T if any reward is per token
        known = ~advantage.isnan()
        captions = max(1, int((known.any(-1) if known.ndim == 3 else known).sum()))
        tokens, end = int(rollout.valid_RT.sum()), share.start
        logs = {} if context.rank else logs  # logs cover the whole batch, so add them only once
        for part in parts:
            pictures = slice(end, end := end + len(part.rows_B))
            own, advantage_part = rollout[pictures], advantage[pictures].flatten(0, 1)
            with context.autocast():
                view = visual if len(parts) == 1 else context.visual(part)
                logits_RTV = self.levels.logits(learner, view, own, part)
                log_p = self.log_probs(logits_RTV, own, learner.end, per_token=advantage.ndim == 3)
                kept = ~advantage_part.isnan()
                loss = -(advantage_part[kept] * log_p[kept]).sum() / captions  # eq. 15 of paper 4
                if cfg.entropy:  # SLL-ME of paper 4
                    log_p_NV = (logits_RTV[own.valid_RT].float() / self.temperature).log_softmax(-1)
                    per = tokens if cfg.entropy_reduction == "mean" else len(rollout.texts)
                    entropy = -(log_p_NV.exp() * log_p_NV).sum(-1).sum() / per
                    loss, logs["entropy"] = loss - cfg.entropy * entropy, float(entropy.detach())
                if cfg.kl:
                    frozen = view.detach() if context.encode is None else part.visual
                    kl_N = self.kl_divergences(logits_RTV, frozen, own, pixels=context.encode is not None)
                    kl = kl_N.sum() / tokens
                    loss, logs["kl"] = loss + cfg.kl * kl, float(kl.detach())
            context.backward(Loss(loss, logs))
            logs = {}  # the losses of micro-batches are summed, but the logs already cover the whole batch
            del logits_RTV, log_p, loss

    def write(
        self, learner: CaptionerLike, visual: torch.Tensor, batch: Batch, decoding: Decoding, *, dropout: bool
    ) -> Rollout:
        """Generates captions for the batch, each conditioned on its level's prompt, without tracking gradients.

        ``dropout``: whether to use dropout, as in the forward pass.
        """

        def of_level(asked: CaptionerLike, seen: torch.Tensor, seeds: ItemSeeds | None) -> Rollout:
            return generate(asked, seen, decoding, seeds, dropout=dropout)

        return self.levels.rollout(learner, visual, batch, of_level)

    def weight(self, term: RewardTerm, reward: torch.Tensor, batch: Batch) -> float | torch.Tensor:
        """Returns the weight of a term or, with levels of detail, one weight per picture, in a shape that broadcasts to
        the reward's shape.
        """
        if not term.prices:
            return term.weight
        price_B = torch.tensor(term.prices)[self.levels.of(batch)]
        return price_B.to(reward).view(-1, *[1] * (reward.ndim - 1))

    def advantages(
        self, rollout: Rollout, greedy: Rollout | None, batch: Batch
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """Computes the advantages of the captions in the batch, and the values to log.

        The advantages are B×S, with NaN where all rewards abstain. If any reward is per token, they are B×S×T, with NaN
        for padding as well. Runs in full precision, because in bf16 the scorer's scaled cosines would be off by tenths
        of a nat.
        """
        device = rollout.tokens_RT.device
        k = 1 if self.cfg.max_at_k is None else self.cfg.max_at_k.at(batch.step)
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            rewards, gains, weights = [], [], []
            for term in self.terms:
                reward = compute_reward(term, rollout, batch).to(device)
                rewards.append(reward)
                if self.cfg.set_quality is not None:
                    reward = self.cfg.set_quality.rewards(term.name, reward, rollout)
                if k > 1:  # the loss averages over captions, but PKPO's estimator is a sum
                    gain = rollout.samples * max_at_k(reward, k).to(reward.dtype)
                else:
                    gain = reward_minus_baseline(term, reward, rollout, greedy, batch)
                if self.cfg.group_normalization:  # GDPO
                    gain = gain / (group_deviation(reward) + EPSILON)
                weights.append(self.weight(term, reward, batch))
                gains.append(weights[-1] * gain)
                if term.name not in self.abstained and bool(reward.isnan().all()):
                    self.abstained.add(term.name)
                    where = f"all captions of step {batch.step + 1}"
                    say(f"reward '{term.name}' is NaN for {where}; it contributes nothing to that step")
            advantage = sum_of_gains(gains, rollout.valid_RT.view(*rewards[0].shape[:2], -1))
            logs = reward_logs(self.terms, weights, rewards, rollout)
            if self.cfg.exploration is not None:  # eq. 16 of paper 4
                advantage, logs["diversity"] = self.cfg.exploration(advantage, rollout)
            if self.cfg.set_quality is not None:
                advantage, logs["diversity"] = self.cfg.set_quality.gains(advantage, rollout)
            if self.cfg.max_at_k is not None:
                logs["k"] = float(k)
        return (whitened(advantage) if self.cfg.whiten else advantage), logs

    def log_probs(
        self, logits_RTV: torch.Tensor, rollout: Rollout, end: int, *, per_token: bool = False
    ) -> torch.Tensor:
        """Returns each caption's length-normalized log-probability, R or, if ``per_token`` is set, its terms, R×T."""
        log_probs_RT = token_log_probs(logits_RTV, rollout.tokens_RT, self.temperature)
        if per_token:
            weight_RT = token_weights(rollout, end, self.cfg.length_normalization, self.cfg.decoding.max_tokens)
            return log_probs_RT * weight_RT.to(log_probs_RT)
        return caption_log_probs(
            log_probs_RT, rollout, end, self.cfg.length_normalization, self.cfg.decoding.max_tokens
        )

    def kl_divergences(
        self, logits_RTV: torch.Tensor, visual: torch.Tensor, rollout: Rollout, *, pixels: bool
    ) -> torch.Tensor:
        """Computes KL(captioner ‖ start) over the vocabulary for each of the N generated tokens, in nats."""
        assert self.start is not None
        with torch.no_grad():
            start_visual = self.start.encode(visual) if pixels else visual
            start_RTV = self.start.logits(start_visual, rollout.tokens_RT, rollout.valid_RT)
        now_NV, start_NV = (
            (scores_RTV[rollout.valid_RT].float() / self.kl_temperature).log_softmax(-1)
            for scores_RTV in (logits_RTV, start_RTV)
        )
        return (now_NV.exp() * (now_NV - start_NV)).sum(-1)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the baselines, in the order of the terms."""
        states = [baseline.state_dict() for baseline in self._stateful_baselines()]
        return {"baselines": states} if states else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # Checkpoints written before there were multiple rewards contain only the state of the single baseline.
        states = state.get("baselines", [state] if state else [])
        for baseline, each in zip(self._stateful_baselines(), states, strict=True):
            baseline.load_state_dict(each)

    def _stateful_baselines(self) -> list[Any]:
        return [term.baseline for term in self.terms if hasattr(term.baseline, "state_dict")]


def generate(
    learner: CaptionerLike, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None, *, dropout: bool
) -> Rollout:
    """Generates captions without tracking gradients. ``dropout``: whether to use dropout, as in the forward pass."""
    with in_mode(learner.model, learner.model.training and dropout), torch.no_grad():
        return learner.generate(visual.detach(), decoding, *(() if seeds is None else (seeds,)))


def sum_of_gains(gains: list[torch.Tensor], valid_BST: torch.Tensor) -> torch.Tensor:
    """Sums the gains. Returns B×S if all gains are B×S, otherwise B×S×T.

    The sum is NaN for padding and where all gains are NaN.
    """
    if all(gain.ndim == 2 for gain in gains):
        stacked = torch.stack(gains)
    else:
        stacked = torch.stack([(gain if gain.ndim == 3 else gain[..., None]).expand(valid_BST.shape) for gain in gains])
        stacked = stacked.masked_fill(~valid_BST, math.nan)
    return stacked.nansum(dim=0).masked_fill(stacked.isnan().all(dim=0), torch.nan)


def group_deviation(reward: torch.Tensor) -> torch.Tensor:
    """Computes the standard deviation of a reward, B×S or B×S×T, over the samples for a picture, B×1 or B×1×1.

    This is the population standard deviation (0 for a single sample). NaN is ignored. Per-token deviations are averaged
    over tokens, with equal weight for each sample. GDPO divides each reward by this value before it sums the rewards,
    so that all rewards have the same scale (Liu et al. 2026).
    """
    mean_B = caption_means(reward).nanmean(1)
    shape = (-1, *[1] * (reward.ndim - 1))
    variance_B = caption_means((reward - mean_B.view(shape)) ** 2).nanmean(1)
    return variance_B.sqrt().view(shape)


def whitened(advantage: torch.Tensor) -> torch.Tensor:
    """Normalizes advantages to mean 0 and standard deviation 1 over the batch's captions (or tokens).

    Returns 0 if all advantages are equal. Keeps NaN.
    """
    known = advantage[~advantage.isnan()]
    if not len(known):
        return advantage
    return (advantage - known.mean()) / (known.std(unbiased=False) + EPSILON)
