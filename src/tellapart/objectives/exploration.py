"""Sequence-level exploration (paper 4): captions that agree with the references, and differ from one another."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tellapart.types import Rollout

Distance = Callable[[Rollout], torch.Tensor]


def exploration(
    precision_BS: torch.Tensor, distance_BSS: torch.Tensor, alpha: float = 0.75, baseline: str = "matching"
) -> torch.Tensor:
    """What multiplies ∇ log p of each sample, B×S, so as to ascend equation 8 of paper 4: its equation 16.

        α · (Δ_j − b)  +  (1 − α) · (2/s) · (Σ_k d(j, k) − b′)

    precision_BS: Δ − b, the reward less its baseline. distance_BSS: d of every two samples of a picture, 0 or more.
    alpha, 0 to 1: 1 is REINFORCE without diversity. baseline b′: ``matching`` is the picture's mean of Σ_k d;
    ``literal`` the paper's mean of all s² pairs (section 4.3), s times smaller than what it is taken from, so that
    nearly all multipliers are positive; ``leave_one_out`` Σ_k d as the pairs without j have it; ``none`` is 0.

    ``matching`` and ``literal`` have j's own distances in them, so that a part of the diversity's gradient cancels:
    (1 − 1/s)(1 − 2/s) of equation 8's is left by the one, (1 − 1/s)(1 − 2/s²) by the other; 0.48 and 0.736 with five
    samples. ``leave_one_out`` leaves what ``none`` does, 1 − 1/s (equation 14 counts k = j): 0.8; it needs three
    samples, and so does ``matching``, which leaves nothing of two. Raises `ValueError` for another baseline.
    """
    S = distance_BSS.shape[-1]
    diversity_BS = distance_BSS.sum(2)
    # eq. 16 of paper 4
    return alpha * precision_BS + (1 - alpha) * 2 / S * (diversity_BS - expected(distance_BSS, baseline))


def expected(distance_BSS: torch.Tensor, baseline: str) -> torch.Tensor | float:
    """The b′ of `exploration`, B×1, B×S or 0."""
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


class Exploration:
    """`exploration` with its settings, for `Reinforce`; ``distance`` is one of `tellapart.rewards.distances`."""

    def __init__(self, distance: Distance, alpha: float = 0.75, baseline: str = "matching") -> None:
        self.distance, self.alpha, self.baseline = distance, alpha, baseline

    def __call__(self, precision_BS: torch.Tensor, rollout: Rollout) -> tuple[torch.Tensor, float]:
        """The multipliers B×S, and for the log the mean d of two different samples of a picture."""
        distance_BSS = self.distance(rollout).to(precision_BS.device)
        apart_SS = ~torch.eye(rollout.samples, dtype=torch.bool, device=distance_BSS.device)
        mean = float(distance_BSS[:, apart_SS].mean())
        return exploration(precision_BS, distance_BSS, self.alpha, self.baseline), mean
