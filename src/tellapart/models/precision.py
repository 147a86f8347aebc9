"""Chooses the precision of a model's weights, and casts them.

For inference, ``auto`` is bfloat16 if the device supports it, otherwise float32. `docs/devices.md` describes what each
command does.
"""

from __future__ import annotations

from typing import Literal, cast

import torch

from tellapart.errors import UsageError, nearest

Precision = Literal["fp32", "bf16", "fp16"]


DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
AMPERE = 8  # the first CUDA capability whose tensor cores multiply in bfloat16


def multiplies_in_bf16(device: torch.device) -> bool:
    """Returns True if the hardware multiplies matrices in bfloat16 (AMX, AVX512_BF16, CUDA capability 8.0, ROCm)."""
    if device.type == "cpu":
        return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())
    if device.type == "cuda":
        return torch.version.hip is not None or torch.cuda.get_device_capability(device)[0] >= AMPERE
    return device.type == "xpu"


def resolve_precision(name: str, device: torch.device) -> Precision:
    """Resolves ``fp32``, ``bf16``, ``fp16`` or ``auto`` (bf16 if ``device`` supports it, otherwise fp32).

    Raises `UsageError` for an unknown precision, and for fp16 on a CPU.
    """
    if name == "auto":
        return "bf16" if multiplies_in_bf16(device) else "fp32"
    if name not in DTYPES:
        raise UsageError(f"unknown precision '{name}'{nearest(name, ('auto', *DTYPES))}")
    if name == "fp16" and device.type == "cpu":
        raise UsageError("fp16 is slower than fp32 on a CPU; use --precision bf16, or --device with an accelerator")
    return cast(Precision, name)


def exact_precision(name: str, device: torch.device) -> Precision:
    """Resolves a precision like `resolve_precision`, except that ``auto`` is fp32.

    Used for measurements (rewards, metrics, picture similarity).
    """
    return resolve_precision("fp32" if name == "auto" else name, device)


def dtype_of(precision: Precision) -> torch.dtype:
    """Returns the dtype for weights in this precision."""
    dtype: torch.dtype = getattr(torch, DTYPES[precision])
    return dtype


def precision_of(model: torch.nn.Module) -> str:
    """Returns the precision of a model's weights, such as ``bf16``, or (for all other dtypes) torch's name."""
    dtype = next((x.dtype for x in model.parameters() if x.is_floating_point()), None)
    name = str(dtype).removeprefix("torch.")
    return next((short for short, long in DTYPES.items() if long == name), name if dtype is not None else "fp32")


def set_precision(model: torch.nn.Module, precision: Precision) -> None:
    """Casts a model's weights and persistent buffers in place.

    All other buffers, such as rotary frequencies, stay in float32, as when transformers loads a model in ``bf16``.
    Weights in less than fp32 are for inference only and do not require gradients, because small updates would be lost.
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


def at_least_float32(x: torch.Tensor) -> torch.Tensor:
    """Converts half precision to float32. Leaves float32 and float64 unchanged."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
