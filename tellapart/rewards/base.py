"""What a reward and a baseline are, and what a run offers to the factories that make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tellapart.models.protocols import CaptionerLike, FrozenScorer
from tellapart.types import Batch, Item, Rollout

if TYPE_CHECKING:
    import numpy as np
    import torch


class Reward(Protocol):
    """``reward(rollout, batch) -> reward_BS``: one number per caption, on any scale; NaN abstains."""

    def __call__(self, rollout: Rollout, batch: Batch, /) -> torch.Tensor: ...


class Baseline(Protocol):
    """``baseline(reward_BS, batch) -> value_BS``: what each reward is compared with."""

    def __call__(self, reward_BS: torch.Tensor, batch: Batch, /) -> torch.Tensor: ...


@runtime_checkable
class StatefulBaseline(Baseline, Protocol):
    """A baseline that remembers; the state is plain JSON and belongs to a checkpoint."""

    def state_dict(self) -> dict[str, float]: ...

    def load_state_dict(self, state: dict[str, float]) -> None: ...


class RunParts(Protocol):
    """What a run offers to the factories of objectives and rewards. Each part is made when it is first asked for."""

    @property
    def captioner(self) -> CaptionerLike:
        """The captioner in training."""
        ...

    @property
    def scorer(self) -> FrozenScorer | None:
        """The frozen scorer of the recipe's [scorer]; None where it names none."""
        ...

    @property
    def train_items(self) -> Sequence[Item]:
        """The training pictures, in the order of ``batch.rows_B``."""
        ...

    def load_scorer(self, name: str) -> FrozenScorer:
        """A further frozen scorer, by the name of its model."""
        ...

    def train_features(self, scorer: FrozenScorer) -> np.ndarray:
        """features_ND of the training pictures."""
        ...

    def start(self) -> CaptionerLike:
        """A fresh copy of the captioner that the run starts from, dropout off."""
        ...
