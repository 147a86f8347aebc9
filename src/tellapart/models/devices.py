"""Chooses the device that models run on, and reports it.

The device ``auto`` is the accelerator that torch finds, otherwise the CPU. `docs/devices.md` lists the behaviour of
each command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tellapart.errors import UsageError
from tellapart.models.precision import precision_of

CPU_ONLY = "ACCELERATE_USE_CPU"  # set by `accelerate launch --cpu`
DEVICE = "TELLAPART_DEVICE"  # variable with the device that `auto` selects in this process and its children


def best_device() -> torch.device:
    """Returns ``$TELLAPART_DEVICE`` if set, else the accelerator that torch finds (CUDA, ROCm, XPU, MPS …), else the
    CPU.
    """
    if (named := os.environ.get(DEVICE, "auto")) != "auto":
        return resolve_device(named)
    if os.environ.get(CPU_ONLY, "").lower() in ("1", "true", "yes", "on") or not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """Resolves ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps`` … Raises `UsageError` if there is no such device."""
    if name == "auto":
        return best_device()
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"unknown device '{name}'; expected auto, cpu, cuda, cuda:1 or mps") from None
    if device.type == "cpu":
        return device
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None or accelerator.type != device.type:
        there = "cpu alone" if accelerator is None else f"cpu and {accelerator.type}"
        raise UsageError(f"device '{name}' is not available: torch finds {there} on this machine; use --device auto")
    if (count := torch.accelerator.device_count()) <= (device.index or 0):
        raise UsageError(
            f"device '{name}' does not exist: this machine has {count}, numbered from {accelerator.type}:0; use "
            f"--device {accelerator.type}"
        )
    return device


@contextmanager
def running_on(device: str) -> Iterator[None]:
    """Makes ``auto`` select this device within the context, also in child processes. Raises `UsageError`."""
    before = os.environ.get(DEVICE)
    if device != "auto":
        resolve_device(device)
        os.environ[DEVICE] = device
    try:
        yield
    finally:
        if before is not None:
            os.environ[DEVICE] = before
        elif device != "auto":
            os.environ.pop(DEVICE, None)


def hardware(*models: Any) -> dict[str, str]:
    """Returns the models' ``{"device", "precision"}`` for a results file, joining different values with commas."""
    devices = dict.fromkeys(str(next((x.device for x in model.parameters()), "cpu")) for model in models)
    return {
        "device": ", ".join(devices),
        "precision": ", ".join(dict.fromkeys(precision_of(model) for model in models)),
    }
