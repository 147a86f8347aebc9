"""Which device models run on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CPU_ONLY = "ACCELERATE_USE_CPU"  # what `accelerate launch --cpu` sets


def best_device() -> torch.device:
    """The accelerator that torch finds (CUDA, ROCm, XPU, MPS …), else the CPU. Every verb takes it by default."""
    import torch

    if os.environ.get(CPU_ONLY, "").lower() in ("1", "true", "yes", "on") or not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.accelerator.current_accelerator() or torch.device("cpu")
