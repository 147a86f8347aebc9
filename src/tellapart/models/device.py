"""Devices, precision and memory of models, and the linear layers of inference on a CPU.

``auto`` is the accelerator that torch finds, else the CPU; for inference it is bfloat16 where that device multiplies
in it, else float32. `docs/devices.md` has the table of what each command does.

On a CPU `packed_linears` multiplies by oneDNN from weights that it has arranged once: torch multiplies fp32 by MKL,
which takes its slower path on CPUs that are not Intel's, and arranges bf16 weights anew at every call, which costs more
than multiplying a few rows. The results are the same but for rounding.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.utils.messages import say
from tellapart.utils.registry import LazyModule

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from transformers import pytorch_utils
else:
    torch, F = LazyModule("torch"), LazyModule("torch.nn.functional")
    pytorch_utils = LazyModule("transformers.pytorch_utils")

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
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is None or found.type != device.type:
        there = "cpu alone" if found is None else f"cpu and {found.type}"
        raise UsageError(f"device '{name}': torch finds {there} on this machine; type: --device auto")
    if (count := torch.accelerator.device_count()) <= (device.index or 0):
        raise UsageError(
            f"device '{name}': there are {count}, counted from {found.type}:0; type: --device {found.type}"
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
    found = next((x.dtype for x in model.parameters() if x.is_floating_point()), None)
    name = str(found).removeprefix("torch.")
    return next((short for short, long in DTYPES.items() if long == name), name if found is not None else "fp32")


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


class FreedMemory:
    """Gives back to the system, every so many ``seconds``, what the C library keeps of freed memory.

    Tensors of many sizes leave holes in glibc's heap, which it keeps: in a long training on a CPU as much again as is
    used (docs/log.md). A call takes a tenth of a second for a few gigabytes.
    """

    def __init__(self, seconds: float = 30.0) -> None:
        self._seconds, self._last = seconds, time.monotonic()
        # Other C libraries have no such call, and need none.
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

    def give_back(self) -> None:
        if self._trim is not None and time.monotonic() - self._last >= self._seconds:
            self._trim(0)
            self._last = time.monotonic()


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


MOST_BYTES = 2**31  # of arranged copies; the layers beyond are multiplied from the weights that they have
ROWS = 16  # the rows that a copy is arranged for; any number may be multiplied
# Modules of transformers whose first layer is followed by an activation and by nothing else: oneDNN does both at once.
ACTIVATED = {
    "BlipMLP": ("fc1", "activation_fn"),
    "Blip2MLP": ("fc1", "activation_fn"),
    "BlipTextIntermediate": ("dense", "intermediate_act_fn"),
    "BertIntermediate": ("dense", "intermediate_act_fn"),
    "ViTIntermediate": ("dense", "intermediate_act_fn"),
}


class PackedLinear:
    """The forward of ``nn.Linear`` or of transformers' ``Conv1D``, without gradient; with one it is the module's own.

    ``copied``: whether the weights may be arranged in a copy, which is made at the first call. ``gelu``: whether the
    product goes through GELU (of the error function) as well.
    """

    def __init__(self, module: Any, copied: bool) -> None:
        self.module, self.copied, self.gelu = module, copied, False
        self.weight_NK: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        module = self.module
        if torch.is_grad_enabled() or x.dtype != module.weight.dtype or x.device.type != "cpu" or not x.numel():
            plain: torch.Tensor = type(module).forward(module, x)
            return F.gelu(plain) if self.gelu else plain
        if self.weight_NK is None:
            weight_NK = module.weight.detach()
            weight_NK = weight_NK if isinstance(module, torch.nn.Linear) else weight_NK.t().contiguous()
            self.weight_NK = torch.ops.mkldnn._reorder_linear_weight(weight_NK, ROWS) if self.copied else weight_NK
        after: tuple[str, list[float], str] = ("gelu", [], "none") if self.gelu else ("none", [], "")
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight_NK, module.bias, *after)
        return product


@contextmanager
def packed_linears(model: torch.nn.Module) -> Iterator[None]:
    """For the moment the linear layers of ``model`` are `PackedLinear`, where that is faster: on a CPU of x86, in fp32,
    and in bf16 where it multiplies in it. Weights must not change meanwhile. Several threads may do so with one model:
    the last one to end gives the layers back."""
    with _LOCK:
        use = _IN_USE.get(model)
        if use is None:
            use = _IN_USE[model] = _Use(_replaced(model))
        use.threads += 1
    try:
        yield
    finally:
        with _LOCK:
            use.threads -= 1
            if not use.threads:
                del _IN_USE[model]
                _give_back(use.changed)


@dataclass
class _Use:
    """The modules of a model whose forward is replaced, and how many threads need that."""

    changed: list[torch.nn.Module]
    threads: int = 0


_LOCK = threading.Lock()
_IN_USE: dict[torch.nn.Module, _Use] = {}


def _replaced(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The modules whose forward is replaced from now on."""
    changed: list[torch.nn.Module] = []
    room = MOST_BYTES
    try:
        for module in model.modules():
            if "forward" not in vars(module) and packs(module):
                weight: torch.Tensor = cast(Any, module).weight
                room -= weight.numel() * weight.element_size()
                if room >= 0 or (weight.dtype == torch.float32 and isinstance(module, torch.nn.Linear)):
                    cast(Any, module).forward = PackedLinear(module, copied=room >= 0)
                    changed.append(module)
        changed += [activation for module in model.modules() if (activation := fused_activation(module)) is not None]
    except BaseException:
        _give_back(changed)
        raise
    return changed


def _give_back(changed: list[torch.nn.Module]) -> None:
    for module in changed:
        del cast(Any, module).forward


def fused_activation(module: Any) -> torch.nn.Module | None:
    """The activation of a module in `ACTIVATED`, which its `PackedLinear` computes from now on; None: as it was."""
    first, name = ACTIVATED.get(type(module).__name__, ("", ""))
    layer: Any = getattr(module, first, None)
    activation: Any = getattr(module, name, None)
    exact = type(activation) is torch.nn.GELU and activation.approximate == "none"
    if type(activation).__name__ == "GELUActivation":
        exact = activation.act is F.gelu
    packed = vars(layer).get("forward") if layer is not None else None
    if not exact or not isinstance(packed, PackedLinear) or "forward" in vars(activation):
        return None
    packed.gelu, activation.forward = True, _as_it_is
    return cast(torch.nn.Module, activation)


def _as_it_is(states: torch.Tensor) -> torch.Tensor:
    return states


def packs(module: torch.nn.Module) -> bool:
    """Returns whether `PackedLinear` can stand for a module's forward."""
    if type(module) not in (torch.nn.Linear, pytorch_utils.Conv1D) or platform.machine() not in ("x86_64", "AMD64"):
        return False
    weight: torch.Tensor = cast(Any, module).weight
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available() or not _has_operators():
        return False
    if weight.dtype == torch.bfloat16:
        return multiplies_in_bf16(weight.device) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32


def _has_operators() -> bool:
    """Returns whether this torch has what its compiler calls for linear layers on a CPU."""
    operators: tuple[Callable[[], Any], ...] = (
        lambda: torch.ops.mkldnn._reorder_linear_weight.default,
        lambda: torch.ops.mkldnn._linear_pointwise.default,
    )
    try:
        return all(operator() is not None for operator in operators)
    except AttributeError:
        return False
