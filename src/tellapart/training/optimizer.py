"""The optimizer and its schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import get_scheduler

from tellapart.errors import UsageError
from tellapart.models.onednn import LARGE
from tellapart.recipe.schema import Training
from tellapart.training.trainable import TrainableParts


def make_optimizer(trainable: TrainableParts, settings: Training) -> Optimizer:
    """Builds Adam or AdamW.

    Vectors and scalars (norms, biases, the scale) are exempt from weight decay, unless the recipe applies weight decay
    to all parameters. A part with its own learning rate has its own two parameter groups. Raises `UsageError` if a
    learning rate is set for a part that is not trained.
    """
    if idle := sorted(settings.learning_rates.keys() - trainable.modules.keys()):
        raise UsageError(
            f"training.learning_rates contains '{idle[0]}', which is not trained; expected one of "
            f"{', '.join(trainable.modules)}"
        )
    groups: list[dict[str, Any]] = []
    for part in (None, *settings.learning_rates):
        mine = trainable.parameters_of(part, settings.learning_rates)
        rate = {} if part is None else {"lr": settings.learning_rates[part]}
        matrices, vectors = ([p for p in mine if (p.ndim > 1) == many] for many in (True, False))
        groups += [{"params": matrices, "weight_decay": settings.weight_decay, **rate}]
        groups += [{"params": vectors, "weight_decay": settings.weight_decay * (settings.decayed == "all"), **rate}]
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    fused = True if runs_fused(trainable.parameters) else None
    return kind([g for g in groups if g["params"]], lr=settings.learning_rate, betas=settings.betas, fused=fused)


def runs_fused(parameters: Sequence[torch.nn.Parameter]) -> bool:
    """Returns whether to use the fused optimizer: always on CUDA; on a CPU, only for models that exceed its caches.

    The fused kernel sums in a different order and therefore rounds differently, so it is not used for small models on a
    CPU.
    """
    if {p.device.type for p in parameters} == {"cuda"}:
        return True
    return {p.device.type for p in parameters} == {"cpu"} and sum(p.numel() for p in parameters) >= LARGE


def make_scheduler(optimizer: Optimizer, settings: Training) -> LRScheduler:
    """Builds the recipe's learning rate schedule. After warmup, the learning rate changes every ``schedule_every``
    steps.
    """

    name = "constant_with_warmup" if settings.schedule == "constant" else settings.schedule
    every, warmup, steps = settings.schedule_every, settings.warmup, settings.steps
    scheduler: LambdaLR = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    if every == 1:
        return scheduler
    factor = scheduler.lr_lambdas[0]
    return LambdaLR(optimizer, lambda step: factor(max(step - step % every, min(step, warmup))))
