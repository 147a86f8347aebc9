"""The interface of objectives: a callable over (learner, batch), with a little state for checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import torch

from tellapart.models import ranks
from tellapart.types import Batch

Encode = Callable[[torch.Tensor], torch.Tensor]
LearnerT = TypeVar("LearnerT", contravariant=True)  # a captioner, or a scorer where the objective is contrastive


@dataclass(slots=True)
class Loss:
    """A scalar to minimize, and numbers for the log."""

    value: torch.Tensor
    logs: dict[str, float] = field(default_factory=dict)


class Objective(Protocol[LearnerT]):
    """``objective(learner, batch) -> Loss``; the state dict is plain JSON (numbers, strings, lists).

    ``losses`` yields the same loss in at most ``chunks`` addends (values and logs), one for each part of the batch.
    They are computed lazily, so that the graph of a part is freed before the next one is built. ``encode`` is the
    captioner's vision encoder where it is trained: ``batch.visual`` then holds pixels. Where several ranks train, each
    is given the whole batch, and yields the addends of its share (`models.ranks.share`); such an objective says
    ``shares_batch = True``.
    """

    def __call__(self, learner: LearnerT, batch: Batch) -> Loss: ...

    def losses(
        self, learner: LearnerT, batch: Batch, chunks: int = 1, encode: Encode | None = None
    ) -> Iterator[Loss]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Stateless(Generic[LearnerT]):
    """Base class of objectives without state. ``losses`` suits those that are means over valid tokens."""

    shares_batch = True

    def __call__(self, learner: LearnerT, batch: Batch) -> Loss:
        raise NotImplementedError

    def losses(self, learner: LearnerT, batch: Batch, chunks: int = 1, encode: Encode | None = None) -> Iterator[Loss]:
        for part in batch[ranks.share(len(batch.rows_B))].split(chunks):
            loss = self(learner, part if encode is None else replace(part, visual=encode(part.visual)))
            share = 1.0
            if len(part.rows_B) < len(batch.rows_B):
                share = float(self.learned(part).sum()) / float(self.learned(batch).sum())
            yield Loss(loss.value * share, {key: value * share for key, value in loss.logs.items()})

    def learned(self, batch: Batch) -> torch.Tensor:
        """The tokens of the references that the loss is a mean over, R×T."""
        assert batch.valid_RT is not None
        return batch.valid_RT

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            raise ValueError(f"this objective has no state; found {sorted(state)}")
