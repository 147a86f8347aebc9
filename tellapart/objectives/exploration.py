"""Sequence-level exploration (paper 4): captions that agree with the references, and differ from one another."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tellapart.types import Rollout

Distance = Callable[[Rollout], torch.Tensor]


def exploration(
    precision_BS: torch.Tensor, distance_BSS: torch.Tensor, alpha: float = 0.75, baseline: str = "matching"
) -> torch.Tensor:
    """What multiplies ∇ log p of each sample so as to ascend equation 8: equation 16 with both baselines.

        α · (Δ_j − b)  +  (1 − α) · (2/s) · (Σ_k d(j, k) − b′)

    precision_BS: Δ − b, the reward less its baseline. distance_BSS: d of every two samples of a picture.
    alpha 1 is REINFORCE without diversity. baseline b′: ``matching`` is the picture's mean of Σ_k d; ``literal``
    the paper's mean of all pairs (section 4.3), which is s times too small for what it is taken from; or ``none``.
    """
    S = distance_BSS.shape[-1]
    diversity_BS = distance_BSS.sum(2)
    mean_B1 = diversity_BS.mean(1, keepdim=True)
    value_B1 = {"matching": mean_B1, "literal": mean_B1 / S, "none": torch.zeros_like(mean_B1)}[baseline]
    return alpha * precision_BS + (1 - alpha) * 2 / S * (diversity_BS - value_B1)


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
