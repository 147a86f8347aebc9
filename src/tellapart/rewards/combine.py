"""Several rewards of one kind as one: averaged, taking turns (what paper 3 leaves to future work), or the lowest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tellapart.errors import UsageError
from tellapart.rewards.base import Reward, RunParts
from tellapart.types import Batch, Rollout


class Averaged:
    """The mean of several rewards; one that abstains is left out, and NaN remains where all do."""

    def __init__(self, rewards: Sequence[Reward]) -> None:
        self.rewards = list(rewards)

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        return torch.stack([reward(rollout, batch) for reward in self.rewards]).nanmean(dim=0)


class Alternating:
    """One reward at each step, in turn: by the batch's number, so that a resumed run goes on where it was."""

    def __init__(self, rewards: Sequence[Reward]) -> None:
        self.rewards = list(rewards)

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        return self.rewards[batch.step % len(self.rewards)](rollout, batch)


class LowestUnseen:
    """The lowest reward of the scorers that never saw the picture: cross-fitting, and pessimism among what is left.

    A scorer flatters captions of pictures that it learned, and each flatters other captions. unseen_KN: whether scorer
    k has not seen training picture n. NaN where all that have not seen it abstain.
    """

    def __init__(self, rewards: Sequence[Reward], unseen_KN: np.ndarray) -> None:
        self.rewards, self.unseen_KN = list(rewards), unseen_KN

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        reward_KBS = torch.stack([reward(rollout, batch) for reward in self.rewards])
        seen_KB1 = torch.from_numpy(~self.unseen_KN[:, batch.rows_B.cpu().numpy()])[..., None].to(reward_KBS.device)
        lowest_BS = reward_KBS.masked_fill(seen_KB1 | reward_KBS.isnan(), torch.inf).amin(0)
        return lowest_BS.masked_fill(lowest_BS.isinf(), torch.nan)


def unseen_by(names: Sequence[str], parts: RunParts) -> np.ndarray:
    """unseen_KN: which training pictures each of these scorers has not learned from.

    Raises `UsageError` where all of them have learned from one.
    """
    unseen_KN = ~np.stack([parts.trained_on(name) for name in names])
    lost_N = np.flatnonzero(~unseen_KN.any(0))
    if len(lost_N):
        raise UsageError(
            f"{len(lost_N)} of {unseen_KN.shape[1]} training pictures, such as {parts.train_items[lost_N[0]].id}, were "
            f"learned by every one of the scorers {', '.join(names)}; expected one that did not; train each on another "
            "part of the data (data.train = '…&part=1,2/3')"
        )
    return unseen_KN
