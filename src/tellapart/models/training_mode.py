"""Switches a model between training and inference mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def in_mode(model: torch.nn.Module, training: bool) -> Iterator[None]:
    """Sets a model's training or inference mode, and restores the previous mode on exit.

    Skips a model that is already in this mode, because switching hundreds of modules takes milliseconds.
    """
    before = model.training
    changes = any(module.training != training for module in model.modules())
    if changes:
        model.train(training)
    try:
        yield
    finally:
        if changes:
            model.train(before)
