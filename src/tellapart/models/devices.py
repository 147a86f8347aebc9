"""Chooses the device, the precision, and a batch size that adapts to the available memory.

The device ``auto`` is the accelerator that torch finds, otherwise the CPU. For inference, the precision ``auto`` is
bfloat16 if that device supports it, otherwise float32. `docs/devices.md` lists the behaviour of each command.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar, cast

import torch

from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.utils.messages import say

Precision = Literal["fp32", "bf16", "fp16"]
CPU_ONLY = "ACCELERATE_USE_CPU"  # set by `accelerate launch --cpu`
DEVICE = "TELLAPART_DEVICE"  # variable with the device that `auto` selects in this process and its children
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
AMPERE = 8  # the first CUDA capability whose tensor cores multiply in bfloat16


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


def multiplies_in_bf16(device: torch.device) -> bool:
    """Returns whether the hardware multiplies matrices in bfloat16 (AMX, AVX512_BF16, CUDA capability 8.0, ROCm)."""
    if device.type == "cpu":
        return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())
    if device.type == "cuda":
        return torch.version.hip is not None or torch.cuda.get_device_capability(device)[0] >= AMPERE
    return device.type == "xpu"


def resolve_precision(name: str, device: torch.device) -> Precision:
    """Resolves ``fp32``, ``bf16``, ``fp16`` or ``auto`` (bf16 if ``device`` supports it). Raises `UsageError`."""
    if name == "auto":
        return "bf16" if multiplies_in_bf16(device) else "fp32"
    if name not in DTYPES:
        raise UsageError(f"unknown precision '{name}'{nearest(name, ('auto', *DTYPES))}")
    if name == "fp16" and device.type == "cpu":
        raise UsageError("fp16 is slower than fp32 on a CPU; use --precision bf16, or --device with an accelerator")
    return cast(Precision, name)


def exact_precision(name: str, device: torch.device) -> Precision:
    """Like `resolve_precision`, but ``auto`` is fp32. Used for measurements (rewards, metrics, picture similarity)."""
    return resolve_precision("fp32" if name == "auto" else name, device)


def dtype_of(precision: Precision) -> torch.dtype:
    """Returns the dtype for weights in this precision."""
    dtype: torch.dtype = getattr(torch, DTYPES[precision])
    return dtype


def precision_of(model: torch.nn.Module) -> str:
    """Returns the precision of a model's weights, such as ``bf16``, or torch's name for other dtypes."""
    dtype = next((x.dtype for x in model.parameters() if x.is_floating_point()), None)
    name = str(dtype).removeprefix("torch.")
    return next((short for short, long in DTYPES.items() if long == name), name if dtype is not None else "fp32")


def set_precision(model: torch.nn.Module, precision: Precision) -> None:
    """Casts weights (and persistent buffers) in place.

    Other buffers, such as rotary frequencies, stay in float32, as when transformers loads a model in ``bf16``. Weights
    below fp32 are for inference only and do not require gradients, because small updates would be lost.
    """
    dtype = dtype_of(precision)
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point() and name not in module._non_persistent_buffers_set:
                module._buffers[name] = buffer.to(dtype)
        for parameter in module._parameters.values():
            if parameter is not None and parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)
    if precision != "fp32":
        model.requires_grad_(False)


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


R = TypeVar("R")
# Messages from torch allocators that raise a plain RuntimeError: CPU (two variants) and MPS.
OUT_OF_MEMORY_MESSAGES = ("can't allocate memory", "not enough memory", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether torch failed to allocate memory, on an accelerator or on the CPU."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in OUT_OF_MEMORY_MESSAGES)


class BatchSize:
    """A batch size that starts at ``size`` and is halved permanently whenever memory runs out."""

    def __init__(self, size: int, what: str) -> None:
        self.size, self.what = size, what

    def batches(self, count: int, work: Callable[[slice], R]) -> Iterator[R]:
        """Yields the results of ``work`` for successive slices of ``count`` items. Raises `TellapartError` if one item
        does not fit.
        """
        start = 0
        while start < count:
            chosen = slice(start, min(start + self.size, count))
            if (result := self._tried(chosen, work)) is None:
                self._halve(chosen.stop - start)
                continue
            start = chosen.stop
            yield result[0]

    @staticmethod
    def _tried(chosen: slice, work: Callable[[slice], R]) -> tuple[R] | None:
        """Returns the result, or None if memory ran out. The work's memory has been freed by then."""
        try:
            return (work(chosen),)
        except RuntimeError as error:  # includes torch.OutOfMemoryError
            if not is_out_of_memory(error):
                raise
            return None

    def _halve(self, tried: int) -> None:
        gc.collect()
        if torch.accelerator.is_available():
            torch.accelerator.empty_cache()
        if tried == 1:
            raise TellapartError(
                f"out of memory with a single picture ({self.what}); try --precision bf16 or --device cpu"
            )
        self.size = max(1, tried // 2)
        say(f"out of memory with batches of {tried} pictures ({self.what}); continuing with {self.size}")
