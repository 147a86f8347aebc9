"""REINFORCE: captions that the captioner wrote itself, made likelier as far as their rewards say."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import Field, model_validator

from tellapart.errors import TellapartError
from tellapart.models.decoding import Decoding
from tellapart.models.plugins import one_line
from tellapart.models.protocols import CaptionerLike
from tellapart.objectives.base import OBJECTIVES, Loss, ObjectiveEntry, ObjectiveOptions, StepContext
from tellapart.objectives.exploration import Exploration
from tellapart.rewards import baselines
from tellapart.rewards.base import (
    REWARDS,
    Baseline,
    BaselineName,
    PluginRewardOptions,
    Reward,
    RewardOptions,
    RunParts,
    StatefulBaseline,
    build_reward,
)
from tellapart.rewards.retrieval import SelfRetrieval
from tellapart.types import Batch, Rollout
from tellapart.utils.lazy import LazyModule
from tellapart.utils.messages import say
from tellapart.utils.options import option_tables
from tellapart.utils.rng import ItemSeeds

if TYPE_CHECKING:
    import torch

    from tellapart.models import ranks

    RewardTable = RewardOptions
else:
    torch, ranks = LazyModule("torch"), LazyModule("tellapart.models.ranks")
    # One table per reward, those of installed packages included; what cannot be loaded is left out.
    TABLES = option_tables(REWARDS.entries(broken=say), RewardOptions, PluginRewardOptions)
    RewardTable = Annotated[Union[TABLES], Field(discriminator="kind")]  # noqa: UP007


@dataclass
class RewardTerm:
    """One addend of the advantage: weight · (reward − baseline).

    Every reward has a baseline of its own, so that one that abstains (NaN) leaves the others as they are. ``greedy``:
    the same reward of the caption that greedy decoding writes, dropout off (Rennie et al. 2017, self-critical). A
    reward of single tokens (B×S×T) is compared with what words of like class were paid in the other captions
    (`rewards.baselines`).
    """

    reward: Reward
    baseline: Baseline | Literal["greedy"]
    weight: float = 1.0
    name: str = "reward"


class Reinforce:
    """Policy gradient of weighted rewards (paper 3, section 3 and B.1; paper 2, section 4.1; paper 4, eq. 11).

    Loss: mean over captions of −advantage · log p(caption), where log p is the sum over the caption's tokens, divided
    as ``length_normalization`` says: ``length+1`` (DiscriTune: end token left out of the sum), ``length`` (paper 2: end
    token in), ``none`` (the sum). ``exploration`` adds paper 4's diversity to the advantage; ``whiten`` makes the
    batch's advantages mean 0 and deviation 1. ``entropy``: weight of the policy's entropy per step, in nats (paper 4's
    SLL-ME); ``entropy_reduction``: of its ``mean`` over the tokens written, or of its ``sum`` over a caption's tokens,
    mean over captions. A log p that is a sum (``length_normalization = "none"``) goes with the sum. ``kl``: weight of
    KL(captioner ‖ start) per token, in nats, both at ``kl_temperature`` (None: the samples' own).
    """

    shares_batch = True

    class Config(ObjectiveOptions):
        """Policy gradient of rewards. The defaults are DiscriTune's: self-retrieval, greedy captions, a running
        mean.
        """

        kind: Literal["reinforce"] = "reinforce"
        rewards: tuple[RewardTable, ...] = Field((SelfRetrieval.Config(kind="self_retrieval"),), min_length=1)
        decoding: Decoding = Decoding(kind="greedy", max_tokens=30)
        baseline: BaselineName = "running_mean"
        length_normalization: Literal["length+1", "length", "none"] = Field("length+1", serialization_alias="normalise")
        dropout_in_rollout: bool = True
        exploration: Exploration.Config | None = None
        whiten: bool = False
        group_normalization: bool = Field(
            False,
            description="divide each reward by its deviation among a picture's samples before they are summed (GDPO)",
        )
        entropy: float = Field(0.0, ge=0)
        entropy_reduction: Literal["mean", "sum"] = Field(
            "mean", description="entropy: of its mean over all tokens, or of its sum over a caption's (paper 4)"
        )
        kl: float = Field(0.0, ge=0)
        kl_temperature: float | None = Field(
            None, gt=0, description="at which captioner and start are compared; by default that of decoding"
        )

        @model_validator(mode="after")
        def fits_together(self) -> Reinforce.Config:
            for wrong in self.contradictions():
                raise ValueError(wrong)
            return self

        def contradictions(self) -> Iterator[str]:
            if self.entropy_reduction != "mean" and not self.entropy:
                yield "entropy_reduction is of the entropy, whose weight is 0; set entropy = 0.01, say, or leave it out"
            if self.kl_temperature is not None and not self.kl:
                yield "kl_temperature is of the KL term, whose weight kl is 0; set kl = 0.1, say, or leave it out"
            used = {self.baseline_of(reward) for reward in self.rewards}
            for baseline in sorted(used & {"leave_one_out", "group_mean"}):
                if self.decoding.samples < 2:
                    yield f"baseline '{baseline}' compares samples of a picture; set decoding.samples = 4, say"
            if self.group_normalization and self.decoding.samples < 2:
                yield "group_normalization compares samples of a picture; set decoding.samples = 4, say"
            if self.exploration is not None and any(reward.per_token for reward in self.rewards):
                yield "exploration is of whole captions, and a reward here is of single tokens; leave one of them out"
            if self.exploration is not None and self.decoding.samples < 2:
                yield "exploration compares samples of a picture; set decoding.kind = 'sample', decoding.samples = 5"
            elif self.exploration is not None and self.exploration.apart and self.decoding.samples < 3:
                yield (
                    f"exploration.baseline '{self.exploration.baseline}' needs three samples of a "
                    f"picture: of two, each is "
                    "as different as the other; set decoding.samples = 5"
                )
            if "greedy" in used and self.decoding.kind == "greedy" and not self.dropout_in_rollout:
                yield (
                    "baseline 'greedy' is the reward of the very caption that greedy decoding without dropout writes: "
                    "nothing would be learned; set decoding.kind = 'sample'"
                )

        def baseline_of(self, reward: RewardOptions) -> BaselineName:
            """The reward's own baseline, or that of the objective."""
            return reward.baseline or self.baseline

        def needs(self) -> tuple[str, ...]:
            return ("start",) if self.kl or any("start" in reward.needs() for reward in self.rewards) else ()

        @property
        def reward_options(self) -> tuple[RewardOptions, ...]:
            return self.rewards

        def build(self, parts: RunParts) -> Reinforce:
            names = [table.kind for table in self.rewards]
            terms = [
                RewardTerm(
                    build_reward(table, parts),
                    baselines.build_baseline(self.baseline_of(table)),
                    table.weight,
                    table.kind if names.count(table.kind) == 1 else f"{table.kind}{place}",
                )
                for place, table in enumerate(self.rewards, 1)
            ]
            return Reinforce(
                terms,
                self.decoding,
                length_normalization=self.length_normalization,
                dropout_in_rollout=self.dropout_in_rollout,
                exploration=self.exploration.build() if self.exploration else None,
                whiten=self.whiten,
                group_normalization=self.group_normalization,
                entropy=self.entropy,
                entropy_reduction=self.entropy_reduction,
                kl=self.kl,
                kl_temperature=self.kl_temperature,
                start=parts.start() if self.kl else None,
            )

        def check(self) -> None:
            """Checks that the rewards can be built, as far as that can be known before any model is loaded."""
            for table in self.rewards:
                if (check := REWARDS.find(table.kind).check) is not None:
                    check(table)

    def __init__(
        self,
        terms: Sequence[RewardTerm],
        decoding: Decoding,
        *,
        length_normalization: str = "length+1",
        dropout_in_rollout: bool = True,
        exploration: Exploration | None = None,
        whiten: bool = False,
        group_normalization: bool = False,
        entropy: float = 0.0,
        entropy_reduction: Literal["mean", "sum"] = "mean",
        kl: float = 0.0,
        kl_temperature: float | None = None,
        start: CaptionerLike | None = None,
    ) -> None:
        if kl and start is None:
            raise ValueError(f"kl is {kl}, and there is no start to compare with; expected a captioner as start")
        self.terms, self.decoding, self.length_normalization = list(terms), decoding, length_normalization
        self.abstained: set[str] = set()  # the rewards of which a line has said so
        self.dropout_in_rollout, self.exploration, self.whiten = dropout_in_rollout, exploration, whiten
        self.group_normalization = group_normalization
        self.entropy, self.entropy_reduction = entropy, entropy_reduction
        self.kl, self.start = kl, start
        self.kl_temperature = self.temperature if kl_temperature is None else kl_temperature

    def __call__(self, learner: CaptionerLike, batch: Batch) -> Loss:
        losses: list[Loss] = []
        self.step(learner, batch, StepContext(losses.append))
        return losses[0]

    def step(self, learner: CaptionerLike, batch: Batch, context: StepContext) -> None:
        """Run the policy-gradient step: generate, reward, and follow the gradient of what was rewarded.

        Each rank generates captions for its share of the pictures; rewards and advantages are those of the whole batch
        on every rank.
        """
        share = ranks.share(len(batch.rows_B))
        parts = batch[share].split(context.micro_batches)
        # Generate, without gradient. Pictures of a single micro-batch are encoded once, for both passes.
        with context.autocast(), torch.set_grad_enabled(len(parts) == 1):
            views = [context.visual(part) for part in parts]
            visual = views[0] if len(views) == 1 else torch.cat(views)
            rollout = self.generate_rollout(
                learner, visual, self.decoding, batch.seeds, dropout=self.dropout_in_rollout
            )
            # Rewards less baselines, of all ranks' captions: B×S, or B×S×T where a reward is of single tokens.
            advantage, logs = self.compute_advantages(learner, visual, rollout, batch)
        known = ~advantage.isnan()
        captions = max(1, int((known.any(-1) if known.ndim == 3 else known).sum()))
        tokens = int(rollout.valid_RT.sum())
        logs = logs if ranks.is_main() else {}  # those of the whole batch count once
        start = share.start
        for part in parts:
            pictures = slice(start, start := start + len(part.rows_B))
            own, advantage_part = rollout[pictures], advantage[pictures].flatten(0, 1)
            with context.autocast():
                view = visual if len(parts) == 1 else context.visual(part)
                logits_RTV = learner.logits(view, own.tokens_RT, own.valid_RT)
                log_p = self.log_probs(logits_RTV, own, learner.end, per_token=advantage.ndim == 3)
                kept = ~advantage_part.isnan()
                loss = -(advantage_part[kept] * log_p[kept]).sum() / captions  # eq. 15 of paper 4
                if self.entropy:  # SLL-ME of paper 4
                    count = tokens if self.entropy_reduction == "mean" else len(rollout.texts)
                    entropy = self.entropies(logits_RTV, own).sum() / count
                    loss, logs["entropy"] = loss - self.entropy * entropy, float(entropy.detach())
                if self.kl:
                    frozen = view.detach() if context.encode is None else part.visual
                    kl_N = self.kl_divergences(logits_RTV, frozen, own, pixels=context.encode is not None)
                    kl = kl_N.sum() / tokens
                    loss, logs["kl"] = loss + self.kl * kl, float(kl.detach())
            context.backward(Loss(loss, logs))
            logs = {}  # losses of micro-batches add up; logs of the whole batch appear once
            del logits_RTV, log_p, loss

    def generate_rollout(
        self,
        learner: CaptionerLike,
        visual: torch.Tensor,
        decoding: Decoding,
        seeds: ItemSeeds | None = None,
        *,
        dropout: bool,
    ) -> Rollout:
        """The captions of the whole batch; ``visual`` is this rank's share of it, ``seeds`` are the whole batch's."""
        training = learner.model.training
        learner.model.train(training and dropout)
        with torch.no_grad():
            seeded = () if seeds is None else (seeds[ranks.share(len(seeds))],)
            rollout = learner.generate(visual.detach(), decoding, *seeded)
        learner.model.train(training)
        return rollout if ranks.count() == 1 else gather_rollout(rollout, learner.tokenizer.pad_token_id or 0)

    def compute_advantages(
        self, learner: CaptionerLike, visual: torch.Tensor, rollout: Rollout, batch: Batch
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """The advantage of every caption, B×S, NaN where all rewards abstain; and what the log says of the batch.

        Where a reward is of single tokens, it is the advantage of every token, B×S×T, NaN on padding.

        In full precision: a scorer's cosines times its scale do not survive bf16.
        """
        greedy = None
        if any(term.baseline == "greedy" for term in self.terms):
            one = Decoding(kind="greedy", max_tokens=self.decoding.max_tokens)
            greedy = self.generate_rollout(learner, visual, one, batch.seeds, dropout=False)
        with torch.no_grad(), torch.autocast(visual.device.type, enabled=False):
            rewards = [compute_reward(term, rollout, batch).to(visual.device) for term in self.terms]
            self.tell_abstained(rewards, batch.step)
            gains = [
                term.weight * self.normalised(self.gain(term, reward, rollout, greedy, batch), reward)
                for term, reward in zip(self.terms, rewards, strict=True)
            ]
            advantage = sum_of_gains(gains, rollout.valid_RT.view(*rewards[0].shape[:2], -1))
            logs = reward_logs(self.terms, rewards, rollout)
            if self.exploration is not None:
                advantage, logs["diversity"] = self.exploration(advantage, rollout)
        return (whitened(advantage) if self.whiten else advantage), logs

    def tell_abstained(self, rewards: Sequence[torch.Tensor], step: int) -> None:
        """One line, once for each reward, where it abstains for the whole batch: nothing is learned from it there."""
        for term, reward in zip(self.terms, rewards, strict=True):
            if term.name not in self.abstained and bool(reward.isnan().all()):
                self.abstained.add(term.name)
                where = f"every caption of step {step + 1}"
                say(f"reward '{term.name}' is NaN for {where}: nothing is learned from it there")

    def normalised(self, gain: torch.Tensor, reward: torch.Tensor) -> torch.Tensor:
        return gain / (baselines.group_deviation(reward) + baselines.EPSILON) if self.group_normalization else gain

    @staticmethod
    def gain(
        term: RewardTerm, reward: torch.Tensor, rollout: Rollout, greedy: Rollout | None, batch: Batch
    ) -> torch.Tensor:
        """Reward less baseline, in the reward's shape: B×S or B×S×T."""
        if isinstance(term.baseline, str):
            assert greedy is not None
            written = compute_reward(term, greedy, batch).to(reward.device)
            if reward.ndim == 2:
                return reward - written
            classes = word_classes(term, rollout), word_classes(term, greedy)
            return reward - baselines.like_class_means(reward, classes[0], written, classes[1]).squeeze(-1)
        if reward.ndim == 3 and term.baseline is baselines.leave_one_out:
            return reward - baselines.leave_one_out_tokens(reward, word_classes(term, rollout))
        return reward - term.baseline(reward, batch)

    @property
    def temperature(self) -> float:
        """What was sampled and what is scored agree: tempered sampling is scored with its temperature (paper 2)."""
        return self.decoding.temperature if self.decoding.kind == "sample" else 1.0

    def log_probs(
        self, logits_RTV: torch.Tensor, rollout: Rollout, end: int, *, per_token: bool = False
    ) -> torch.Tensor:
        """One log-probability R for each caption, normalised as the settings say; or its addends R×T."""
        log_probs_RT = token_log_probs(logits_RTV, rollout.tokens_RT, self.temperature)
        if per_token:
            return log_probs_RT * token_weights(rollout, end, self.length_normalization).to(log_probs_RT)
        return caption_log_probs(log_probs_RT, rollout, end, self.length_normalization)

    def entropies(self, logits_RTV: torch.Tensor, rollout: Rollout) -> torch.Tensor:
        """Entropy of the next word at each of the N tokens written, in nats, of what was sampled from."""
        log_p_NV = (logits_RTV[rollout.valid_RT].float() / self.temperature).log_softmax(-1)
        return -(log_p_NV.exp() * log_p_NV).sum(-1)

    def kl_divergences(
        self, logits_RTV: torch.Tensor, visual: torch.Tensor, rollout: Rollout, *, pixels: bool
    ) -> torch.Tensor:
        """KL(captioner ‖ start) over the whole vocabulary at each of the N tokens written, in nats."""
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
        """What the baselines remember, in the terms' order."""
        states = [baseline.state_dict() for baseline in self._stateful_baselines()]
        return {"baselines": states} if states else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # Until rewards could be several, the one baseline's state was the whole.
        states = state.get("baselines", [state] if state else [])
        for baseline, each in zip(self._stateful_baselines(), states, strict=True):
            baseline.load_state_dict(each)

    def _stateful_baselines(self) -> list[StatefulBaseline]:
        return [term.baseline for term in self.terms if isinstance(term.baseline, StatefulBaseline)]


def gather_rollout(rollout: Rollout, pad: int) -> Rollout:
    """The captions of all ranks, picture by picture."""
    tokens_RT = ranks.gather_rows(rollout.tokens_RT, fill=pad)
    valid_RT = ranks.gather_rows(rollout.valid_RT).bool()
    return Rollout(tokens_RT, valid_RT, ranks.gather_texts(rollout.texts), rollout.samples)


def compute_reward(term: RewardTerm, rollout: Rollout, batch: Batch) -> torch.Tensor:
    """The term's rewards as float, B×S, or B×S×T with NaN on padding; what else a user's own returns is one line."""
    try:
        returned = term.reward(rollout, batch)
    except Exception as error:
        if getattr(term.reward, "__module__", "").partition(".")[0] == "tellapart":
            raise
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{at.filename}, line {at.lineno}"
        raise TellapartError(f"reward '{term.name}' failed: {one_line(error)} ({where})") from error
    valid_BST = rollout.valid_RT.view(len(batch.rows_B), rollout.samples, -1)
    shape = tuple(valid_BST.shape)
    expected = f"expected {shape[:2]}, B×S, or {shape}, B×S×T"
    try:
        reward = torch.as_tensor(returned)
    except (TypeError, ValueError, RuntimeError):
        raise TellapartError(f"reward '{term.name}' returned a {type(returned).__name__}; {expected}") from None
    reward = reward if reward.dtype == torch.float64 else reward.float()
    if tuple(reward.shape) not in (shape, shape[:2]):
        raise TellapartError(f"reward '{term.name}' returned shape {tuple(reward.shape)}; {expected}")
    if reward.ndim == 3:
        reward = reward.masked_fill(~valid_BST.to(reward.device), math.nan)
    if bool(reward.isinf().any()):
        raise TellapartError(f"reward '{term.name}' is infinite; expected a number, or NaN to abstain")
    return reward


def sum_of_gains(gains: list[torch.Tensor], valid_BST: torch.Tensor) -> torch.Tensor:
    """Gains B×S and B×S×T added up: B×S where all are, else B×S×T; NaN where all abstain, and on padding."""
    if all(gain.ndim == 2 for gain in gains):
        stacked = torch.stack(gains)
    else:
        stacked = torch.stack([(gain if gain.ndim == 3 else gain[..., None]).expand(valid_BST.shape) for gain in gains])
        stacked = stacked.masked_fill(~valid_BST, math.nan)
    return stacked.nansum(dim=0).masked_fill(stacked.isnan().all(dim=0), torch.nan)


def word_classes(term: RewardTerm, rollout: Rollout) -> torch.Tensor:
    """class_BST of the tokens, as the reward says; all are of one class where it does not."""
    classes_RT = torch.zeros_like(rollout.tokens_RT)
    if isinstance(term.reward, baselines.ClassifiesWords):
        classes_RT = term.reward.word_classes(rollout).to(classes_RT.device)
    return classes_RT.view(-1, rollout.samples, classes_RT.shape[1])


def whitened(advantage: torch.Tensor) -> torch.Tensor:
    """Mean 0 and deviation 1 over the batch's captions (or tokens); equal ones become 0. NaN stays."""
    known = advantage[~advantage.isnan()]
    if not len(known):
        return advantage
    return (advantage - known.mean()) / (known.std(unbiased=False) + baselines.EPSILON)


def reward_logs(terms: Sequence[RewardTerm], rewards: Sequence[torch.Tensor], rollout: Rollout) -> dict[str, float]:
    """The weighted reward, each reward where they are several, and what the captions are like."""
    each = {term.name: float(reward.nanmean()) for term, reward in zip(terms, rewards, strict=True)}
    known = {name: value for name, value in each.items() if not math.isnan(value)}  # one that abstained is not logged
    return {
        **({"reward": sum(term.weight * known.get(term.name, 0.0) for term in terms)} if known else {}),
        **({f"reward.{name}": value for name, value in known.items()} if len(terms) > 1 else {}),
        "length": float(rollout.valid_RT.sum(1).float().mean()),
        "distinct": len(set(rollout.texts)) / len(rollout.texts),
    }


def token_log_probs(logits_RTV: torch.Tensor, tokens_RT: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Log-probability R×T of each token, in nats, from logits divided by ``temperature``."""
    logits_RTV = (logits_RTV if logits_RTV.dtype == torch.float64 else logits_RTV.float()) / temperature
    return logits_RTV.gather(-1, tokens_RT[..., None]).squeeze(-1) - logits_RTV.logsumexp(-1)


def caption_log_probs(
    log_probs_RT: torch.Tensor, rollout: Rollout, end: int, length_normalization: str
) -> torch.Tensor:
    """One log-probability R for each caption from its tokens'; an empty caption counts as its end token.

    ``length+1``: sum over words, without the end token, divided by (words + 1); ``length``: sum with the
    end token, divided by its count; ``none``: the sum with the end token.
    """
    if length_normalization == "length+1":
        words_RT = rollout.valid_RT & (rollout.tokens_RT != end)
        return (log_probs_RT * counted_tokens(rollout, end, length_normalization)).sum(1) / (words_RT.sum(1) + 1)
    total_R = (log_probs_RT * rollout.valid_RT).sum(1)
    return total_R / rollout.valid_RT.sum(1).clamp(min=1) if length_normalization == "length" else total_R


def counted_tokens(rollout: Rollout, end: int, length_normalization: str) -> torch.Tensor:
    """R×T: which tokens' log-probabilities are summed, see `caption_log_probs`."""
    if length_normalization != "length+1":
        return rollout.valid_RT
    words_RT = rollout.valid_RT & (rollout.tokens_RT != end)
    # An empty caption has no word to make likelier: its end token stands in, so that it can be unlearned.
    return torch.where(words_RT.any(1, keepdim=True), words_RT, rollout.valid_RT)


def token_weights(rollout: Rollout, end: int, length_normalization: str) -> torch.Tensor:
    """weight_RT, float64, of each token's log-probability in that of its caption, see `caption_log_probs`."""
    counted_RT = counted_tokens(rollout, end, length_normalization).double()
    if length_normalization == "none":
        return counted_RT
    words_RT = rollout.valid_RT & (rollout.tokens_RT != end)
    size_R = words_RT.sum(1) + 1 if length_normalization == "length+1" else rollout.valid_RT.sum(1).clamp(min=1)
    return counted_RT / size_R[:, None]


OBJECTIVES.register(
    ObjectiveEntry(
        name="reinforce",
        factory=Reinforce.Config.build,
        help="Policy gradients of rewards such as self-retrieval and CIDEr-D.",
        options=Reinforce.Config,
        needs=(),
        label="REINFORCE",
        check=Reinforce.Config.check,
    )
)
