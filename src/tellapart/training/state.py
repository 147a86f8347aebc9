"""Saves and loads a checkpoint's weights, optimizer and scheduler."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tellapart.errors import TellapartError
from tellapart.training.trainable import TrainableParts


def save_state(folder: Path | None, trainable: TrainableParts, optimizer: Optimizer, scheduler: LRScheduler) -> None:
    """Writes weights, optimizer and scheduler to ``folder``.

    All ranks must call this function; ranks that do not write pass None.
    """
    state = trainable.optimizer_state(optimizer)
    if folder is not None:
        torch.save({"optimiser": state, "scheduler": scheduler.state_dict()}, folder / "optimiser.pt")
    del state
    with trainable.whole():
        if folder is not None:
            weights = {name: t.detach().contiguous() for name, t in trainable.tensors().items()}
            save_file(weights, folder / "weights.safetensors")


def load_weights(folder: Path, trainable: TrainableParts) -> None:
    """Loads the weights that `save_state` wrote. Raises `TellapartError` for a checkpoint of a different model."""
    weights, tensors = load_file(folder / "weights.safetensors"), trainable.tensors()
    if {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in tensors.items()}:
        raise TellapartError(f"{folder} is a checkpoint of a different model; start again with another --out")
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(weights[name])


def load_optimizer(folder: Path, trainable: TrainableParts, optimizer: Optimizer, scheduler: LRScheduler) -> None:
    """Loads the optimizer and scheduler that `save_state` wrote."""
    saved = torch.load(folder / "optimiser.pt", weights_only=True)
    trainable.load_optimizer_state(optimizer, saved["optimiser"])
    scheduler.load_state_dict(saved["scheduler"])
