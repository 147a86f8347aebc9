"""``kind = "self_retrieval"``: the scorer retrieves the picture by its caption (papers 2 and 3)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from tellapart.rewards.base import REWARDS, Reward, RewardEntry, RewardOptions, RunParts, frozen_scorers
from tellapart.utils.options import ModelName


class SelfRetrieval(RewardOptions):
    """Self-retrieval: paper 3's three scores, among the pictures of the batch or of the picture's bag.

    ``scorers``: further scorers in place of [scorer]. Several are averaged, or ``alternate`` by step; or the ``lowest``
    reward counts of those whose own training did not have the picture (by the ids of their runs' recipes).
    """

    kind: Literal["self_retrieval"]
    score: Literal["log_prob", "accuracy", "cosine"] = "log_prob"
    candidates: Literal["batch", "bag"] = Field("batch", serialization_alias="among")
    scorers: tuple[ModelName, ...] = ()
    combine: Literal["average", "alternate", "lowest"] = "average"

    @model_validator(mode="after")
    def has_an_effect(self) -> SelfRetrieval:
        if self.score == "cosine" and self.candidates == "bag":
            raise ValueError(
                "score 'cosine' looks at no other picture, so candidates = 'bag' has no effect; leave it out"
            )
        if self.combine == "alternate" and len(self.scorers) < 2:
            raise ValueError("combine = 'alternate' takes turns; give at least two scorers = ['…', '…']")
        if self.combine == "lowest" and (len(self.scorers) < 2 or self.score == "cosine"):
            raise ValueError(
                "combine = 'lowest' compares scorers; give at least two scorers = ['…', '…'], and no score 'cosine', "
                "whose scale is each scorer's own"
            )
        return self

    def needs(self) -> tuple[str, ...]:
        return () if self.scorers else ("scorer",)

    def scorer_names(self) -> tuple[str, ...]:
        return self.scorers

    @property
    def compares_pictures(self) -> bool:
        return self.score != "cosine"

    @property
    def per_bag(self) -> bool:
        return self.candidates == "bag"


def build(options: SelfRetrieval, parts: RunParts) -> Reward:
    from tellapart.rewards.combine import Alternating, Averaged, LowestUnseen, unseen_by
    from tellapart.rewards.retrieval import SelfRetrieval as SelfRetrievalReward

    rewards = [
        SelfRetrievalReward(scorer, parts.train_features(scorer), score=options.score, candidates=options.candidates)
        for scorer in frozen_scorers(options.scorers, parts)
    ]
    if len(rewards) == 1:
        return rewards[0]
    if options.combine == "lowest":
        return LowestUnseen(rewards, unseen_by(options.scorers, parts))
    return Averaged(rewards) if options.combine == "average" else Alternating(rewards)


REWARDS.register(
    RewardEntry(
        name="self_retrieval",
        factory=build,
        help="The scorer retrieves the picture by its caption.",
        options=SelfRetrieval,
        needs=("scorer",),
        label="self-retrieval",
        direction="higher",
    )
)
