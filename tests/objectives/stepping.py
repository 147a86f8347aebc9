"""The losses of an objective's micro-batches, as a step gives them to the backward pass."""

from __future__ import annotations

from typing import Any

from tellapart.objectives.base import Objective
from tellapart.types import Batch, Loss, StepContext


def micro_batches(objective: Objective[Any], learner: Any, batch: Batch, count: int) -> list[Loss]:
    """Return the loss of each of at most ``count`` micro-batches of a step."""
    losses: list[Loss] = []
    objective.step(learner, batch, StepContext(losses.append, count))
    return losses
