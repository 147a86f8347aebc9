"""Set-level diversity of captions: the product form of Darling and the marginal form of SetPO.

Darling (Li et al. 2025, arXiv 2509.02534) multiplies each reward by the fraction of other samples that differ.
SetPO (Li et al. 2026, arXiv 2602.01062) adds each sample's contribution to the diversity of its set to the advantage.
Both papers compare reasoning traces with learned models, whereas this module compares the words of captions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field, model_validator

from tellapart.errors import TellapartError
from tellapart.objectives.caption_distances import edit_distance, half_bleu_distance, word_distance
from tellapart.types import Rollout
from tellapart.utils.option_tables import Strict


def share_of_others(distance_BSS: torch.Tensor) -> torch.Tensor:
    """Computes Darling's diversity of each sample, B×S: its mean distance from the other samples, in [0, 1].

    distance_BSS: in [0, 1], 0 on the diagonal. If distances are 0 or 1, the result is the fraction of other samples
    that differ.
    """
    return distance_BSS.sum(2) / (distance_BSS.shape[2] - 1)


def set_diversity(similarity_BSS: torch.Tensor) -> torch.Tensor:
    """Computes the diversity of each of B sets of S samples: mean over i of −log(1 + Σ_{j≠i} k(i, j) / (S − 1)).

    The diversity is at most 0, and 0 for a single sample. SetPO's abstract mentions kernels, diminishing returns and
    leave-one-out. We use means instead of sums, because they make sets of different sizes comparable.

    similarity_BSS: k, in [0, 1].
    """
    S = similarity_BSS.shape[2]
    if S < 2:
        return similarity_BSS.new_zeros(len(similarity_BSS))
    others_BS = similarity_BSS.sum(2) - similarity_BSS.diagonal(dim1=1, dim2=2)
    return -torch.log1p(others_BS / (S - 1)).mean(1)


def marginal_diversity(similarity_BSS: torch.Tensor) -> torch.Tensor:
    """For each sample, computes the diversity of its set minus the diversity of the set without the sample, B×S."""
    S = similarity_BSS.shape[2]
    whole_B = set_diversity(similarity_BSS)
    without = []
    for i in range(S):
        rest = [j for j in range(S) if j != i]
        without.append(whole_B - set_diversity(similarity_BSS[:, rest][:, :, rest]))
    return torch.stack(without, dim=1)


DISTANCES: dict[str, Callable[[Rollout], torch.Tensor]] = {
    "words": word_distance,
    "edit": edit_distance,
    "bleu": half_bleu_distance,
}


class SetQuality(Strict):
    """Rewards sets of captions that are both good and diverse.

    ``product`` multiplies each reward (at least 0) by the sample's diversity (Darling). ``marginal`` adds ``weight``
    times the sample's centred marginal diversity to the advantage (SetPO).
    """

    form: Literal["product", "marginal"] = "product"
    distance: Literal["words", "edit", "bleu"] = Field(
        "words",
        description="distance between two samples, 0 to 1: different content words, word edits, or 1 − the mean of "
        "BLEU-3 and BLEU-4",
    )
    weight: float = Field(1.0, gt=0, description="weight of the marginal diversity (only with form 'marginal')")

    @model_validator(mode="after")
    def has_an_effect(self) -> SetQuality:
        if self.form == "product" and self.weight != 1.0:
            raise ValueError("weight requires form = 'marginal'; remove weight or set form = 'marginal'")
        return self

    def rewards(self, name: str, reward_BS: torch.Tensor, rollout: Rollout) -> torch.Tensor:
        """Multiplies the rewards by the diversity if the form is ``product``. Otherwise, returns them unchanged.

        Raises `TellapartError` for a negative reward, because the product would then favour similar captions.
        """
        if self.form == "marginal":
            return reward_BS
        if bool((reward_BS < 0).any()):
            raise TellapartError(
                f"reward '{name}' is {float(reward_BS.nan_to_num().min()):.3g} for a caption; "
                "objective.set_quality with form = 'product' requires non-negative rewards; use a reward "
                "such as self_retrieval with score = 'accuracy', or set form = 'marginal'"
            )
        return reward_BS * share_of_others(DISTANCES[self.distance](rollout)).to(reward_BS)

    def gains(self, advantage_BS: torch.Tensor, rollout: Rollout) -> tuple[torch.Tensor, float]:
        """Returns the advantages B×S, and (for the log) the mean distance between samples for the same picture."""
        distance_BSS = DISTANCES[self.distance](rollout).to(advantage_BS)
        if self.form == "marginal":
            marginal_BS = marginal_diversity(1 - distance_BSS)
            advantage_BS = advantage_BS + self.weight * (marginal_BS - marginal_BS.mean(1, keepdim=True))
        return advantage_BS, float(share_of_others(distance_BSS).mean())
