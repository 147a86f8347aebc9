"""max@k: optimizes the best of k captions, which ``--best-of k`` selects (PKPO; Walder and Karkhanis 2025).

Walder and Karkhanis 2025 (arXiv 2505.15201) give unbiased estimators, from n ≥ k samples, for the gradient of the
expected maximum of k rewards. This module implements the estimator that needs no separate baseline: each caption gets
credit for how much it raises the best of k.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field, model_validator

from tellapart.utils.option_tables import Strict


def max_at_k(reward_BS: torch.Tensor, k: int) -> torch.Tensor:
    """Computes the effective rewards s_BS of max@k in float64, at least 0 and in the same unit as the rewards.

    With the n rewards of a picture sorted in ascending order g₀ … gₙ₋₁:

        sᵢ = Σ_{j<i} C(j, k−2) · (gᵢ − gⱼ) / C(n, k)

    Each sᵢ is the sum, over all k-subsets that contain i, of the maximum minus the maximum without i, divided by the
    number of k-subsets. Σᵢ sᵢ · ∇log p(captionᵢ) is an unbiased estimate of the gradient of E[max of k rewards].

    NaN rewards abstain and do not count towards n. A picture with fewer than k rewards abstains.

    k: at least 2.
    """
    if k < 2:
        raise ValueError(f"max@k requires k >= 2, got {k}; for k = 1, use REINFORCE with a baseline")
    reward_BS = reward_BS.double()
    missing_BS = reward_BS.isnan()
    # Missing rewards are sorted to the end, so that no other reward is compared with them.
    sorted_BS, order_BS = reward_BS.masked_fill(missing_BS, torch.inf).sort(dim=1, stable=True)
    sorted_BS = torch.where(sorted_BS.isinf(), 0.0, sorted_BS - sorted_BS[:, :1].nan_to_num(posinf=0.0))
    below_S = torch.tensor([math.comb(j, k - 2) for j in range(reward_BS.shape[1])]).to(reward_BS)
    count_BS = below_S.cumsum(0) - below_S  # number of subsets of k − 1 other captions that rank below i
    mass_BS = (below_S * sorted_BS).cumsum(1) - below_S * sorted_BS
    known_B = (~missing_BS).sum(1).tolist()
    subsets_B1 = torch.tensor([[float(math.comb(n, k)) or math.nan] for n in known_B]).to(reward_BS)
    effective_BS = (sorted_BS * count_BS - mass_BS) / subsets_B1
    placed_BS = torch.empty_like(effective_BS).scatter_(1, order_BS, effective_BS)
    return placed_BS.masked_fill(missing_BS, torch.nan)


class MaxAtK(Strict):
    """While k is at least 2, uses the effective rewards of `max_at_k` instead of reward minus baseline.

    ``k`` changes linearly to ``k_end`` over the first ``steps`` steps, rounded to integers. While k is 1, the objective
    is REINFORCE with its baselines. Effective rewards are differences between rewards for the same picture, so they
    need no baseline.
    """

    k: int = Field(ge=1, description="number of captions per set; only the best caption in a set counts")
    k_end: int | None = Field(None, ge=1, description="final k of the schedule; requires steps")
    steps: int = Field(0, ge=0, description="number of steps over which k changes to k_end")

    @model_validator(mode="after")
    def anneals_as_a_whole(self) -> MaxAtK:
        if (self.k_end is None) != (self.steps == 0):
            raise ValueError("k_end and steps must be set together; set both to anneal k, or remove both")
        if self.k == 1 and self.k_end in (None, 1):
            raise ValueError("k = 1 is plain REINFORCE; set, for example, k = 4, or remove max_at_k")
        return self

    @property
    def largest(self) -> int:
        """The largest k in the schedule, which is the minimum number of samples per picture."""
        return max(self.k, self.k_end or 1)

    def at(self, step: int) -> int:
        """Returns k for a step. Steps are numbered from 0."""
        if self.k_end is None:
            return self.k
        return round(self.k + (self.k_end - self.k) * min(step / self.steps, 1.0))
