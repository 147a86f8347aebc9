"""Sequence-level exploration (paper 4): a diversity term for policy gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from pydantic import Field, model_validator

from tellapart.objectives.caption_distances import bleu_distance, bleu_similarity, edit_distance
from tellapart.types import Rollout
from tellapart.utils.option_tables import Strict


def exploration(
    precision_BS: torch.Tensor, distance_BSS: torch.Tensor, alpha: float = 0.75, baseline: str = "matching"
) -> torch.Tensor:
    """Computes the advantages B×S (paper 4, eq. 16), for which the policy gradient ascends eq. 8.

        α · (Δ_j − b)  +  (1 − α) · (2/s) · (Σ_k d(j, k) − b′)

    precision_BS: Δ − b, the reward minus its baseline.
    distance_BSS: d for each pair of samples for a picture, non-negative.
    alpha: in [0, 1]; 1 is REINFORCE without diversity.
    baseline: b′. ``matching`` is the picture's mean of Σ_k d. ``literal`` is the paper's mean over all s² pairs
        (section 4.3), which is s times smaller than the sum from which it is subtracted, so nearly all advantages are
        positive. ``leave_one_out`` estimates Σ_k d from the pairs that do not contain j. ``none`` is 0.

    ``matching`` and ``literal`` include j's own distances, which cancels part of the diversity gradient. Relative to
    eq. 8, the fraction that remains is (1 − 1/s)(1 − 2/s) with ``matching``, (1 − 1/s)(1 − 2/s²) with ``literal``, and
    1 − 1/s with ``leave_one_out`` and ``none`` (eq. 14 counts k = j): 0.48, 0.736 and 0.8 for five samples.
    ``leave_one_out`` and ``matching`` require three samples. Raises `ValueError` for an unknown baseline.
    """
    S = distance_BSS.shape[-1]
    diversity_BS = distance_BSS.sum(2)
    # eq. 16 of paper 4
    return alpha * precision_BS + (1 - alpha) * 2 / S * (diversity_BS - expected(distance_BSS, baseline))


def expected(distance_BSS: torch.Tensor, baseline: str) -> torch.Tensor | float:
    """Computes b′ of `exploration`: B×1, B×S or 0."""
    S = distance_BSS.shape[-1]
    if baseline == "none":
        return 0.0
    if baseline == "leave_one_out":
        itself_BS = distance_BSS.diagonal(dim1=1, dim2=2)
        apart_BSS = distance_BSS - torch.diag_embed(itself_BS)
        without_BS = apart_BSS.sum((1, 2))[:, None] - apart_BSS.sum(1) - apart_BSS.sum(2)
        return without_BS / (S - 2) + itself_BS
    mean_B1 = distance_BSS.sum(2).mean(1, keepdim=True)
    if baseline not in ("matching", "literal"):
        raise ValueError(f"baseline is '{baseline}'; expected matching, literal, leave_one_out or none")
    return mean_B1 if baseline == "matching" else mean_B1 / S


def distance_by_name(name: str, reference: str = "both") -> Callable[[Rollout], torch.Tensor]:
    """Returns the distance function with this name in recipes."""
    if name == "edit":
        return edit_distance
    return partial({"bleu": bleu_distance, "bleu-similarity": bleu_similarity}[name], reference=reference)


class Exploration(Strict):
    """Adds diversity to the advantage (paper 4): α · (reward − baseline) + (1 − α) · diversity (see `exploration`).

    The defaults correct the paper; ``distance = "bleu-similarity"`` and ``baseline = "literal"`` follow its text.
    """

    alpha: float = Field(0.75, ge=0, le=1)
    distance: Literal["bleu", "edit", "bleu-similarity"] = "bleu"
    reference: Literal["both", "other", "own"] = Field(
        "both", description="caption in a pair that serves as BLEU's reference"
    )
    baseline: Literal["matching", "literal", "leave_one_out", "none"] = "matching"

    @property
    def apart(self) -> bool:
        """Returns True if the baseline compares a sample's distances with the other samples' distances."""
        return self.alpha < 1 and self.baseline in ("matching", "leave_one_out")

    @model_validator(mode="after")
    def has_an_effect(self) -> Exploration:
        if self.distance == "edit" and self.reference != "both":
            raise ValueError(
                f"distance = 'edit' is symmetric, so reference = '{self.reference}' has no effect; remove it"
            )
        return self

    def __call__(self, precision_BS: torch.Tensor, rollout: Rollout) -> tuple[torch.Tensor, float]:
        """Returns the advantages B×S, and (for the log) the mean distance between samples for the same picture."""
        distance_BSS = distance_by_name(self.distance, self.reference)(rollout).to(precision_BS.device)
        apart_SS = ~torch.eye(rollout.samples, dtype=torch.bool, device=distance_BSS.device)
        mean = float(distance_BSS[:, apart_SS].mean())
        return exploration(precision_BS, distance_BSS, self.alpha, self.baseline), mean
