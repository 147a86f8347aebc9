"""One training step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tellapart.errors import TellapartError, UsageError
from tellapart.models import collectives
from tellapart.objectives.base import Objective
from tellapart.training.batches import TrainingSet
from tellapart.training.build import TrainingSetup
from tellapart.training.trainable import TrainableParts
from tellapart.types import Loss


def train_step(
    setup: TrainingSetup,
    data: TrainingSet,
    objective: Objective[Any],
    trainable: TrainableParts,
    optimizer: Optimizer,
    scheduler: LRScheduler,
    step: int,
) -> dict[str, float]:
    """Performs one optimizer step and returns its logs.

    All random numbers depend only on seed and step, so only the weights, the optimizer and the objective's state carry
    over between steps. Each item has its own random numbers (`Batch.seeds`). Dropout uses torch's generator and differs
    between ranks. Raises `TellapartError` if the loss is not finite, and `UsageError` if the batch has fewer pictures
    than there are ranks.
    """
    recipe, context = setup.recipe, setup.step_context
    logs: dict[str, float] = {}
    rank = [context.rank] if context.rank else []
    torch.manual_seed(int(np.random.default_rng([recipe.seed, step, 2, *rank]).integers(2**62)))
    batch = data.batch(step)
    if len(batch.rows_B) < context.world_size:
        raise UsageError(
            f"the batch of step {step + 1} has {len(batch.rows_B)} pictures for {context.world_size} ranks; "
            "expected at least one picture per rank; raise training.batch_size or start fewer ranks"
        )

    def backward(loss: Loss) -> None:
        if not bool(torch.isfinite(loss.value)):
            raise TellapartError(f"the loss is {float(loss.value)} at step {step + 1}; lower training.learning_rate")
        loss.value.backward()
        for key, value in {"loss": float(loss.value.detach()), **loss.logs}.items():
            logs[key] = logs.get(key, 0.0) + value  # sums over micro-batches

    optimizer.zero_grad(set_to_none=True)
    with trainable.whole():
        objective.step(setup.learner, batch, replace(context, backward=backward))
        if context.world_size > 1:
            trainable.add_up_gradients()
    logs = collectives.add_up(logs) if context.world_size > 1 else logs
    norm = trainable.clip_gradients(recipe.training.max_grad_norm)
    optimizer.step()
    rate = float(scheduler.get_last_lr()[0])
    scheduler.step()
    return {**logs, "gradient_norm": norm, "learning_rate": rate}
