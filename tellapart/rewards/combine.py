"""Several rewards of one kind as one: averaged, or taking turns (what paper 3 leaves to future work, for scorers)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tellapart.rewards.base import Reward
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
