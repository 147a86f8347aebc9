"""Rewards captions whose claims are as frequent among a picture's samples as they are true.

The confidence q of a claim is the share of the picture's samples that make it; y is 1 for a true claim, else 0. The
reward of a claim is −(q − y)², the Brier score with its sign changed: a claim that most samples make should be true,
and a true claim should be made by most samples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal

import torch

from tellapart.errors import need_extra
from tellapart.rewards.base import Reward, RewardOptions, RunParts, reward
from tellapart.rewards.claims import distinct_claims
from tellapart.scenes.parser import tokens
from tellapart.scenes.truth import stated_claims
from tellapart.scenes.world import Scene
from tellapart.types import Batch, Item, Rollout

Judged = Mapping[Hashable, bool]  # the distinct claims of a caption, and whether each is true


def confidences(samples: Sequence[Judged]) -> dict[Hashable, float]:
    """Computes q of every claim: the share of a picture's samples that make it."""
    counts = Counter(claim for claims in samples for claim in claims)
    return {claim: count / len(samples) for claim, count in counts.items()}


def brier_rewards(samples: Sequence[Judged]) -> list[float]:
    """Computes for each sample of a picture the mean of −(q − y)² over its claims, −1 to 0; NaN without claims."""
    q = confidences(samples)
    each = [[-((q[claim] - float(true)) ** 2) for claim, true in claims.items()] for claims in samples]
    return [sum(values) / len(values) if values else math.nan for values in each]


def judged_by_scene(caption: str, scene: Scene) -> Judged:
    """Returns the claims of a caption about a scene: true ones by the fact that they state, others by their words."""
    words = tokens(caption)
    return {
        claim.fact if claim.fact is not None else ("false", *(words[word] for word in claim.words)): (
            claim.fact is not None
        )
        for claim in stated_claims(caption, scene)
    }


def judged_by_references(caption: str, references: Sequence[str]) -> Judged:
    """Returns the claims of a caption; those that some reference makes are true."""
    known = {claim for text in references for claim in distinct_claims(text)}
    return {claim: claim in known for claim in distinct_claims(caption)}


class Calibration:
    """`brier_rewards` of the samples of each picture, B×S; NaN for captions without claims."""

    @reward("calibration", help="How well the share of samples that make a claim predicts that it is true.")
    class Config(RewardOptions):
        """Mean of −(q − y)² over a caption's claims, −1 to 0; q is the share of the picture's samples that make it.

        ``verifier``: whether a claim is true (y) by the picture's ``references``, or by the ``truth`` of scenes.
        """

        kind: Literal["calibration"]
        verifier: Literal["references", "truth"] = "references"

        def needs(self) -> tuple[str, ...]:
            return tuple(dict.fromkeys([*super().needs(), self.verifier]))

        def check(self) -> None:
            if self.verifier == "references":
                need_extra("words", "the extraction of claims", "HanTa")

        def build(self, parts: RunParts) -> Reward:
            return Calibration(self.verifier)

    def __init__(self, verifier: Literal["references", "truth"]) -> None:
        self.verifier = verifier

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        S = rollout.samples
        rewards = [
            brier_rewards([self.judged(text, item) for text in rollout.texts[b * S : b * S + S]])
            for b, item in enumerate(batch.items)
        ]
        return torch.tensor(rewards, device=rollout.tokens_RT.device)

    def judged(self, caption: str, item: Item) -> Judged:
        """Returns the claims of a caption, and whether each is true."""
        if self.verifier == "truth":
            return judged_by_scene(caption, item.truth)
        return judged_by_references(caption, item.references)
