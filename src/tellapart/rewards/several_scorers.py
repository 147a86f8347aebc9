"""Combines rewards from several scorers: takes the mean, alternates between scorers, or takes the lowest reward among
the scorers that were not trained on the picture.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tellapart.rewards.base import Reward
from tellapart.types import Batch, Rollout


class Averaged:
    """Averages several rewards, ignoring those that abstain. Returns NaN if all of them abstain."""

    def __init__(self, rewards: Sequence[Reward]) -> None:
        self.rewards = list(rewards)

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        return torch.stack([reward(rollout, batch) for reward in self.rewards]).nanmean(dim=0)


class Alternating:
    """Alternates between rewards from step to step.

    The step's number selects the reward, so a resumed run continues the cycle.
    """

    def __init__(self, rewards: Sequence[Reward]) -> None:
        self.rewards = list(rewards)

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        return self.rewards[batch.step % len(self.rewards)](rollout, batch)


class LowestUnseen:
    """Takes the lowest reward over the scorers that were not trained on the picture (cross-fitting and pessimism).

    A scorer overrates captions of its training pictures, and different scorers overrate different captions. unseen_KN:
    True if scorer k was not trained on training picture n. Returns NaN if all scorers that were not trained on the
    picture abstain.
    """

    def __init__(self, rewards: Sequence[Reward], unseen_KN: np.ndarray) -> None:
        self.rewards, self.unseen_KN = list(rewards), unseen_KN

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        reward_KBS = torch.stack([reward(rollout, batch) for reward in self.rewards])
        seen_KB1 = torch.from_numpy(~self.unseen_KN[:, batch.rows_B.cpu().numpy()])[..., None].to(reward_KBS.device)
        lowest_BS = reward_KBS.masked_fill(seen_KB1 | reward_KBS.isnan(), torch.inf).amin(0)
        return lowest_BS.masked_fill(lowest_BS.isinf(), torch.nan)
