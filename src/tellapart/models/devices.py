"""Device, precision, and batch size under memory pressure.

The device ``auto`` is the accelerator that torch finds, else the CPU; the precision ``auto`` is, for inference,
bfloat16 if that device multiplies in it, else float32. `docs/devices.md` has the table of what each command does.
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
CPU_ONLY = "ACCELERATE_USE_CPU"  # what `accelerate launch --cpu` sets
DEVICE = "TELLAPART_DEVICE"  # the device that `auto` stands for, in this process and those that it starts
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
AMPERE = 8  # the first CUDA capability whose tensor cores multiply in bfloat16


def best_device() -> torch.device:
    """``$TELLAPART_DEVICE``, else the accelerator that torch finds (CUDA, ROCm, XPU, MPS …), else the CPU."""
    if (named := os.environ.get(DEVICE, "auto")) != "auto":
        return resolve_device(named)
    if os.environ.get(CPU_ONLY, "").lower() in ("1", "true", "yes", "on") or not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """The device behind ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps`` … Raises `UsageError` where there is none."""
    if name == "auto":
        return best_device()
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"no device is called '{name}'; expected auto, cpu, cuda, cuda:1 or mps") from None
    if device.type == "cpu":
        return device
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None or accelerator.type != device.type:
        there = "cpu alone" if accelerator is None else f"cpu and {accelerator.type}"
        raise UsageError(f"device '{name}': torch finds {there} on this machine; type: --device auto")
    if (count := torch.accelerator.device_count()) <= (device.index or 0):
        raise UsageError(
            f"device '{name}': there are {count}, counted from {accelerator.type}:0; type: --device {accelerator.type}"
        )
    return device


def multiplies_in_bf16(device: torch.device) -> bool:
    """Returns whether the hardware multiplies matrices in bfloat16: AMX, AVX512_BF16, CUDA from capability 8.0,
    ROCm.
    """
    if device.type == "cpu":
        return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())
    if device.type == "cuda":
        return torch.version.hip is not None or torch.cuda.get_device_capability(device)[0] >= AMPERE
    return device.type == "xpu"


def resolve_precision(name: str, device: torch.device) -> Precision:
    """``fp32``, ``bf16`` or ``fp16``; ``auto`` is bf16 where ``device`` multiplies in it. Raises `UsageError`."""
    if name == "auto":
        return "bf16" if multiplies_in_bf16(device) else "fp32"
    if name not in DTYPES:
        raise UsageError(f"no precision is called '{name}'{nearest(name, ('auto', *DTYPES))}")
    if name == "fp16" and device.type == "cpu":
        raise UsageError("fp16 is slower than fp32 on a CPU; type: --precision bf16, or --device with an accelerator")
    return cast(Precision, name)


def exact_precision(name: str, device: torch.device) -> Precision:
    """As `resolve_precision` for what measures (rewards, metrics, similarity of pictures): ``auto`` is fp32."""
    return resolve_precision("fp32" if name == "auto" else name, device)


def dtype_of(precision: Precision) -> torch.dtype:
    """The dtype of weights in this precision."""
    dtype: torch.dtype = getattr(torch, DTYPES[precision])
    return dtype


def precision_of(model: torch.nn.Module) -> str:
    """The precision of a model's weights, such as ``bf16``; of another dtype torch's name of it."""
    dtype = next((x.dtype for x in model.parameters() if x.is_floating_point()), None)
    name = str(dtype).removeprefix("torch.")
    return next((short for short, long in DTYPES.items() if long == name), name if dtype is not None else "fp32")


def set_precision(model: torch.nn.Module, precision: Precision) -> None:
    """Cast weights (and buffers that are saved with them) in place.

    Other buffers, such as the frequencies of rotary positions, keep float32, as they do where transformers loads a
    model in ``bf16``. Below fp32 the weights are for inference and take no gradient: small updates would be lost.
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
    """For the moment ``auto`` stands for this device, here and in processes that are started. Raises `UsageError`."""
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
    """``{"device", "precision"}`` of models, for a result's file; several that differ are joined with commas."""
    devices = dict.fromkeys(str(next((x.device for x in model.parameters()), "cpu")) for model in models)
    return {
        "device": ", ".join(devices),
        "precision": ", ".join(dict.fromkeys(precision_of(model) for model in models)),
    }


R = TypeVar("R")
# What allocators of torch say where they raise a plain RuntimeError: the CPU's (two ways), MPS.
WORDS = ("can't allocate memory", "not enough memory", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether torch could not allocate memory, on an accelerator or on the CPU."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in WORDS)


class BatchSize:
    """Decides how many items are worked on at once: ``size`` until memory runs out, then half as many, from then on."""

    def __init__(self, size: int, what: str) -> None:
        self.size, self.what = size, what

    def batches(self, count: int, work: Callable[[slice], R]) -> Iterator[R]:
        """``work`` of slices of ``count`` items, one after the other. Raises `TellapartError` where one is too many."""
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
        """The result, or None where memory ran out: whatever the work held is free on return."""
        try:
            return (work(chosen),)
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            if not is_out_of_memory(error):
                raise
            return None

    def _halve(self, tried: int) -> None:
        gc.collect()
        if torch.accelerator.is_available():
            torch.accelerator.empty_cache()
        if tried == 1:
            raise TellapartError(
                f"out of memory with one picture at once ({self.what}); type: --precision bf16, or --device cpu"
            )
        self.size = max(1, tried // 2)
        say(f"out of memory with {tried} pictures at once ({self.what}); going on with {self.size}")
