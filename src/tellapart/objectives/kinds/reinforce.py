"""``kind = "reinforce"``: policy gradients of rewards (papers 2, 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import Field, model_validator

from tellapart.models.decoding import Decoding
from tellapart.objectives.registry import OBJECTIVES, ObjectiveEntry, ObjectiveOptions
from tellapart.rewards.base import (
    REWARDS,
    Baseline,
    BaselineName,
    PluginRewardOptions,
    RewardOptions,
    RunParts,
    build_reward,
)
from tellapart.rewards.kinds.self_retrieval import SelfRetrieval
from tellapart.utils.messages import say
from tellapart.utils.options import Strict, option_tables

if TYPE_CHECKING:
    from tellapart.objectives.exploration import Exploration as ExplorationBonus
    from tellapart.objectives.reinforce import Reinforce as ReinforceObjective

    RewardTable = RewardOptions
else:
    # One table per reward, those of installed packages included; what cannot be loaded is left out.
    TABLES = option_tables(REWARDS.entries(broken=say), RewardOptions, PluginRewardOptions)
    RewardTable = Annotated[Union[TABLES], Field(discriminator="kind")]  # noqa: UP007


class Exploration(Strict):
    """Paper 4: α · rewards + (1 − α) · how different the samples of a picture are. The defaults are corrected;
    distance = "bleu-similarity" and baseline = "literal" are the paper's words."""

    alpha: float = Field(0.75, ge=0, le=1)
    distance: Literal["bleu", "edit", "bleu-similarity"] = "bleu"
    reference: Literal["both", "other", "own"] = Field("both", description="the reference of BLEU's two sides")
    baseline: Literal["matching", "literal", "leave_one_out", "none"] = "matching"

    @property
    def apart(self) -> bool:
        """Whether a sample's distances are compared with those of the others."""
        return self.alpha < 1 and self.baseline in ("matching", "leave_one_out")

    @model_validator(mode="after")
    def has_an_effect(self) -> Exploration:
        if self.distance == "edit" and self.reference != "both":
            raise ValueError(f"distance 'edit' has no reference side; leave out reference = '{self.reference}'")
        return self


class Reinforce(ObjectiveOptions):
    """Policy gradient of rewards. The defaults are DiscriTune's: self-retrieval, greedy captions, a running mean."""

    kind: Literal["reinforce"] = "reinforce"
    rewards: tuple[RewardTable, ...] = Field((SelfRetrieval(kind="self_retrieval"),), min_length=1)
    decoding: Decoding = Decoding(kind="greedy", max_tokens=30)
    baseline: BaselineName = "running_mean"
    length_normalization: Literal["length+1", "length", "none"] = Field("length+1", serialization_alias="normalise")
    dropout_in_rollout: bool = True
    exploration: Exploration | None = None
    whiten: bool = False
    group_normalization: bool = Field(
        False, description="divide each reward by its deviation among a picture's samples before they are summed (GDPO)"
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
    def fits_together(self) -> Reinforce:
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
                f"exploration.baseline '{self.exploration.baseline}' needs three samples of a picture: of two, each is "
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


def build(options: Reinforce, parts: RunParts) -> ReinforceObjective:
    from tellapart.objectives.reinforce import Reinforce as ReinforceObjective
    from tellapart.objectives.reinforce import RewardTerm

    names = [table.kind for table in options.rewards]
    terms = [
        RewardTerm(
            build_reward(table, parts),
            build_baseline(options.baseline_of(table)),
            table.weight,
            table.kind if names.count(table.kind) == 1 else f"{table.kind}{place}",
        )
        for place, table in enumerate(options.rewards, 1)
    ]
    return ReinforceObjective(
        terms,
        options.decoding,
        length_normalization=options.length_normalization,
        dropout_in_rollout=options.dropout_in_rollout,
        exploration=build_exploration(options.exploration) if options.exploration else None,
        whiten=options.whiten,
        group_normalization=options.group_normalization,
        entropy=options.entropy,
        entropy_reduction=options.entropy_reduction,
        kl=options.kl,
        kl_temperature=options.kl_temperature,
        start=parts.start() if options.kl else None,
    )


def build_baseline(name: BaselineName) -> Baseline | Literal["greedy"]:
    """A fresh baseline by its name in a recipe."""
    from tellapart.rewards.baselines import RunningMean, group_mean, leave_one_out, no_baseline

    if name == "running_mean":
        return RunningMean()
    if name == "greedy":
        return "greedy"
    return {"leave_one_out": leave_one_out, "group_mean": group_mean, "none": no_baseline}[name]


def build_exploration(options: Exploration) -> ExplorationBonus:
    from tellapart.objectives.exploration import Exploration as ExplorationBonus
    from tellapart.rewards.distances import distance_by_name

    return ExplorationBonus(distance_by_name(options.distance, options.reference), options.alpha, options.baseline)


def check(options: Reinforce) -> None:
    """The rewards can be built, as far as that can be known before any model is loaded."""
    for table in options.rewards:
        if (check_reward := REWARDS.find(table.kind).check) is not None:
            check_reward(table)


OBJECTIVES.register(
    ObjectiveEntry(
        name="reinforce",
        factory=build,
        help="Policy gradients of rewards such as self-retrieval and CIDEr-D.",
        options=Reinforce,
        needs=(),
        label="REINFORCE",
        check=check,
    )
)
