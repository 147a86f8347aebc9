"""Speeds up large fp32 models on a CPU, in training too: linear layers run with oneDNN, and GELU as one operation.

Torch multiplies fp32 matrices with MKL, which takes a slower path on non-Intel CPUs. Results are equal up to rounding.
"""

from __future__ import annotations

import functools
import platform
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from transformers import pytorch_utils

from tellapart.models.precision import multiplies_in_bf16

LARGE = 2**24  # minimum number of weights for using oneDNN (64 MB in fp32), so that small models' sums keep their order


@dataclass(eq=False)
class OneDnnLinear:
    """Replaces the fp32 forward pass of ``nn.Linear`` or transformers' ``Conv1D`` on a CPU with oneDNN.

    The replacement is differentiable. MKL, which torch uses for fp32, takes a slower path on non-Intel CPUs.
    """

    module: Any

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        module = self.module
        if not multiplies_by_onednn(x, module.weight):
            plain: torch.Tensor = type(module).forward(module, x)
            return plain
        weight_NK = module.weight if isinstance(module, torch.nn.Linear) else module.weight.T
        return product(x, weight_NK, module.bias)


def multiplies_by_onednn(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Returns True if `OneDnnLinear` is faster: input and weights are fp32 on a CPU with AVX512, without autocast."""
    fits = x.dtype == weight.dtype == torch.float32 and x.device.type == weight.device.type == "cpu" and x.numel()
    return bool(fits) and not torch.is_autocast_enabled("cpu") and has_onednn() and torch.cpu._is_avx512_supported()


def speed_up(model: torch.nn.Module) -> None:
    """Speeds up the layers of a large model. Results are equal up to rounding. Leaves small models unchanged.

    Replaces ``gelu_new``, which takes eight operations in transformers, with the equivalent single operation in torch,
    and linear layers with `OneDnnLinear`.
    """
    if sum(parameter.numel() for parameter in model.parameters()) < LARGE:
        return
    module: Any
    for module in list(model.modules()):
        if "forward" not in vars(module) and runs_on_onednn(module):
            module.forward = OneDnnLinear(module)
        for name, child in module.named_children():
            if type(child).__name__ == "NewGELUActivation":
                setattr(module, name, torch.nn.GELU("tanh"))


def linear(x: torch.Tensor, weight_NK: torch.Tensor, bias_N: torch.Tensor | None = None) -> torch.Tensor:
    """Computes ``F.linear``. Like `OneDnnLinear`, uses oneDNN for large fp32 layers on a CPU with AVX512."""
    large = weight_NK.numel() >= LARGE and multiplies_by_onednn(x, weight_NK)
    return (product if large else F.linear)(x, weight_NK, bias_N)


def product(x: torch.Tensor, weight_NK: torch.Tensor, bias_N: torch.Tensor | None) -> torch.Tensor:
    """Computes ``F.linear`` in fp32 on a CPU with oneDNN. Does not support double backward.

    weight_NK: N×K, or a transposed view of K×N weights.
    """
    result: torch.Tensor = Product.apply(x, weight_NK, bias_N)  # type: ignore[no-untyped-call]
    return result


class Product(torch.autograd.Function):
    """`product` for autograd."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight_NK: torch.Tensor, bias_N: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight_NK)
        return multiply(x, weight_NK, bias_N)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight_NK = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        x_MK, grad_MN = x.reshape(-1, x.shape[-1]), grad.reshape(-1, grad.shape[-1])
        to_weight_NK = None
        if wants_weight and weight_NK.is_contiguous():  # same layout as the weights, as optimizers expect
            to_weight_NK = multiply(grad_MN.T, x_MK.T)
        elif wants_weight:
            to_weight_NK = multiply(x_MK.T, grad_MN.T).T
        to_x = multiply(grad, weight_NK.T) if wants_x else None
        return to_x, to_weight_NK, grad_MN.sum(0) if wants_bias else None


def multiply(x: torch.Tensor, weight_NK: torch.Tensor, bias_N: torch.Tensor | None = None) -> torch.Tensor:
    result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight_NK, bias_N, "none", [], "")
    return result


def runs_on_onednn(module: torch.nn.Module) -> bool:
    """Returns True if oneDNN can run a module's forward pass in its precision."""
    if type(module) not in (torch.nn.Linear, pytorch_utils.Conv1D):
        return False
    weight: Any = module.weight
    if weight.device.type != "cpu" or not has_onednn():
        return False
    if weight.dtype == torch.bfloat16:
        return multiplies_in_bf16(weight.device) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(weight.dtype == torch.float32)


@functools.cache
def has_onednn() -> bool:
    """Returns True if this is an x86 CPU and torch has the linear-layer operators that torch.compile uses on x86."""
    x86 = platform.machine() in ("x86_64", "AMD64") and torch.backends.mkldnn.is_available()
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return x86 and all(hasattr(torch.ops.mkldnn, name) for name in names)
