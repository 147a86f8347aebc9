"""Calibration reward: the negative Brier score of a caption's claims.

The confidence q in a claim is the fraction of the picture's samples that make the claim; y is 1 for a true claim and 0
for a false one. The reward for a claim is −(q − y)²: claims that most samples make should be true, and true claims
should be made by most samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch

from tellapart.errors import need_extra
from tellapart.language.distinct_claims import Judged, confidences, judged_by_references
from tellapart.rewards.base import Reward, RewardOptions, reward
from tellapart.rewards.run_parts import RunParts
from tellapart.scenes.stated_claims import judged_by_scene
from tellapart.types import Batch, Item, Rollout


def brier_rewards(samples: Sequence[Judged]) -> list[float]:
    """For each sample, computes the mean of −(q − y)² over its claims, in [−1, 0]; NaN for a sample without claims."""
    q = confidences(samples)
    each = [[-((q[claim] - float(true)) ** 2) for claim, true in claims.items()] for claims in samples]
    return [sum(values) / len(values) if values else math.nan for values in each]


class Calibration:
    """Computes `brier_rewards` for the samples of each picture, B×S in [−1, 0]; NaN for captions without claims."""

    @reward(
        "calibration",
        help="Negative Brier score of a caption's claims, where the confidence is the fraction of "
        "samples that make the claim.",
    )
    class Config(RewardOptions):
        """Mean of −(q − y)² over a caption's claims, in [−1, 0]. q is the fraction of samples that make the claim.

        ``verifier``: whether the picture's ``references`` or a scene's ground ``truth`` determine y (1 if the claim is
        true, 0 if it is false).
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
        """Returns a caption's claims, and whether each claim is true."""
        if self.verifier == "truth":
            return judged_by_scene(caption, item.truth)
        return judged_by_references(caption, item.references)
