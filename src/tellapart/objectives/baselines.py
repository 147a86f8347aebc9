"""Baselines, which are subtracted from rewards to compute advantages.

Rewards are B×S, or B×S×T with NaN for tokens without a reward. Per-token rewards are compared within a word class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from tellapart.rewards.base import BaselineName
from tellapart.types import Batch

# ``baseline(reward_BS, batch) -> value_BS`` (or B×S×T to B×S×T): the value to subtract from each reward.
Baseline = Callable[["torch.Tensor", Batch], "torch.Tensor"]


class RunningMean:
    """DiscriTune's baseline: the mean of the previous batch means, initially 0. Ignores NaN rewards."""

    def __init__(self) -> None:
        self.mean, self.count = 0.0, 0

    def __call__(self, reward_BS: torch.Tensor, batch: Batch) -> torch.Tensor:
        value = torch.full_like(reward_BS, self.mean)
        caption_BS = caption_means(reward_BS)
        known = caption_BS[~caption_BS.isnan()]
        if len(known):
            self.count += 1
            self.mean += (float(known.mean()) - self.mean) / self.count
        return value

    def state_dict(self) -> dict[str, float]:
        return {"mean": self.mean, "count": self.count}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.mean, self.count = float(state["mean"]), int(state["count"])


def no_baseline(reward_BS: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Returns zeros B×S or B×S×T, for plain REINFORCE."""
    return torch.zeros_like(reward_BS)


def group_mean(reward_BS: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Computes the mean reward of all samples for the picture (GRPO, Shao et al. 2024), B×S or B×S×T."""
    mean_B = caption_means(reward_BS).nanmean(1)
    return mean_B.view(-1, *[1] * (reward_BS.ndim - 1)).expand_as(reward_BS)


def caption_means(reward: torch.Tensor) -> torch.Tensor:
    """Averages per-token rewards B×S×T over each caption. Returns per-caption rewards B×S unchanged."""
    return reward if reward.ndim == 2 else reward.nanmean(2)


def leave_one_out(reward_BS: torch.Tensor, batch: Batch) -> torch.Tensor:
    """For each sample, computes the mean reward of the picture's other samples (Kool et al. 2019; RLOO).

    Ignores NaN rewards. The value is NaN if all other samples abstain. Raises ValueError for a single sample.
    """
    if reward_BS.shape[1] < 2:
        raise ValueError("Leave-one-out compares the samples of a picture; expected at least 2 samples, got 1")
    known_BS = ~reward_BS.isnan()
    value_BS = reward_BS.nan_to_num()
    others_BS = known_BS.sum(1, keepdim=True) - known_BS.long()
    return (value_BS.sum(1, keepdim=True) - value_BS) / torch.where(others_BS > 0, others_BS, torch.nan)


def like_class_means(
    reward_BST: torch.Tensor, class_BST: torch.Tensor, other_BST: torch.Tensor, other_class_BST: torch.Tensor
) -> torch.Tensor:
    """Computes value_BSTO: for each token, the mean reward of words of the same class in each of the picture's O other
    captions.

    reward_BST, class_BST: the captions' rewards and word classes. other_BST, other_class_BST: the same for the captions
    to compare with, B×O×U. If a caption has no word of the token's class, its value is the mean over all of its tokens;
    if a caption abstains, its value is NaN.
    """
    same_BSTOU = class_BST[:, :, :, None, None] == other_class_BST[:, None, None]
    known_BOU = ~other_BST.isnan()
    counted_BSTOU = same_BSTOU & known_BOU[:, None, None]
    value_BOU = other_BST.nan_to_num()
    number_BSTO = counted_BSTOU.sum(-1)
    own_class = torch.einsum("bstou,bou->bsto", counted_BSTOU.to(value_BOU), value_BOU) / number_BSTO.clamp(min=1)
    whole_BO = value_BOU.sum(2) / torch.where(known_BOU.any(2), known_BOU.sum(2), torch.nan)
    return torch.where(number_BSTO > 0, own_class, whole_BO[:, None, None])


def leave_one_out_tokens(reward_BST: torch.Tensor, class_BST: torch.Tensor) -> torch.Tensor:
    """For each token, B×S×T, computes the mean reward of words in the same class in the picture's other samples.

    Equals `leave_one_out` if the reward is constant within each caption. Ignores NaN rewards. Raises ValueError for a
    single sample.
    """
    S = reward_BST.shape[1]
    if S < 2:
        raise ValueError("Leave-one-out compares the samples of a picture; expected at least 2 samples, got 1")
    value_BSTS = like_class_means(reward_BST, class_BST, reward_BST, class_BST)
    itself = torch.eye(S, dtype=torch.bool, device=reward_BST.device)[None, :, None]
    return value_BSTS.masked_fill(itself, torch.nan).nanmean(-1)


def build_baseline(name: BaselineName) -> Baseline | Literal["greedy"]:
    """Builds the baseline with this name in recipes."""
    if name == "greedy":
        return "greedy"
    if name == "running_mean":
        return RunningMean()
    return {"leave_one_out": leave_one_out, "group_mean": group_mean, "none": no_baseline}[name]
