"""Chooses the device that models run on, and reports it.

The device ``auto`` is the accelerator that torch finds or, without one, the CPU. `docs/devices.md` describes what each
command does.
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
DEVICE = "TELLAPART_DEVICE"  # environment variable that sets what `auto` selects in this process and its children


def best_device() -> torch.device:
    """Returns ``$TELLAPART_DEVICE`` if it is set, or else the accelerator that torch finds (CUDA, ROCm, XPU, MPS …), or
    else the CPU.
    """
    if (named := os.environ.get(DEVICE, "auto")) != "auto":
        return resolve_device(named)
    if os.environ.get(CPU_ONLY, "").lower() in ("1", "true", "yes", "on") or not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """Resolves ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps`` … Raises `UsageError` if the device does not exist."""
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
        there = "only cpu" if accelerator is None else f"cpu and {accelerator.type}"
        raise UsageError(f"device '{name}' is not available: torch finds {there} on this machine; use --device auto")
    if (count := torch.accelerator.device_count()) <= (device.index or 0):
        raise UsageError(
            f"device '{name}' does not exist: this machine has {count} such devices, numbered from "
            f"{accelerator.type}:0; use --device {accelerator.type}"
        )
    return device


@contextmanager
def running_on(device: str) -> Iterator[None]:
    """Within the context, makes ``auto`` select this device, in child processes too.

    Raises `UsageError` if the device does not exist.
    """
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
    """Returns the models' ``device`` and ``precision`` for a results file, with different values joined by commas."""
    devices = dict.fromkeys(str(next((x.device for x in model.parameters()), "cpu")) for model in models)
    return {
        "device": ", ".join(devices),
        "precision": ", ".join(dict.fromkeys(precision_of(model) for model in models)),
    }
