"""Baselines: what a reward is compared with, so that the gradient has less noise."""

from __future__ import annotations

import torch

from tellapart.types import Batch


class RunningMean:
    """DiscriTune's baseline: the mean of all batch means so far. Starts at 0; used first, updated after."""

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
    """Zero: plain REINFORCE."""
    return torch.zeros_like(reward_BS)


def group_mean(reward_BS: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The mean reward of the picture's samples, its own included (GRPO, Shao et al. 2024)."""
    mean_B = caption_means(reward_BS).nanmean(1)
    return mean_B.view(-1, *[1] * (reward_BS.ndim - 1)).expand_as(reward_BS)


def caption_means(reward: torch.Tensor) -> torch.Tensor:
    """B×S: rewards of captions as they are; of tokens, B×S×T, the mean of each caption's."""
    return reward if reward.ndim == 2 else reward.nanmean(2)


def leave_one_out(reward_BS: torch.Tensor, batch: Batch) -> torch.Tensor:
    """For each sample the mean reward of the picture's other samples (Kool et al. 2019; RLOO).

    NaNs abstain, and so does a sample that no other one's reward can be compared with. Raises ValueError for a
    single sample, which has no others.
    """
    if reward_BS.shape[1] < 2:
        raise ValueError("leave-one-out compares a picture's samples; expected at least 2, found 1")
    known_BS = ~reward_BS.isnan()
    value_BS = reward_BS.nan_to_num()
    others_BS = known_BS.sum(1, keepdim=True) - known_BS.long()
    return (value_BS.sum(1, keepdim=True) - value_BS) / torch.where(others_BS > 0, others_BS, torch.nan)
