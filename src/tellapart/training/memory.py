"""Measures the memory of a training process."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence

import torch
from torch.optim import Optimizer

from tellapart.training.trainable import TrainableParts


def memory_of(trainable: TrainableParts, optimizer: Optimizer) -> dict[str, int]:
    """Returns the size of this rank's trained weights, gradients and optimizer state, and its peak memory, in bytes.

    The peak is measured on the accelerator; on a CPU, it is the peak of the process's resident set.
    """
    gradients = [p.grad for p in trainable.parameters if p.grad is not None]
    state = [t for values in optimizer.state.values() for t in values.values() if isinstance(t, torch.Tensor)]
    kept: dict[str, Sequence[torch.Tensor]] = {
        "weights": trainable.parameters,
        "gradients": gradients,
        "optimizer": state,
    }
    sizes = {name: sum(map(bytes_here, tensors)) for name, tensors in kept.items()}
    return sizes | {"peak": peak_memory(trainable.parameters[0].device)}


def bytes_here(tensor: torch.Tensor) -> int:
    """Returns the size in bytes of the part of a tensor that is on this rank."""
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # a shard is a DTensor
    return int(local.numel() * local.element_size())


def peak_memory(device: torch.device) -> int:
    """Returns this process's peak memory on the device, in bytes; on a CPU, the peak of its resident set."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
