"""Runs linear layers with oneDNN on a CPU.

Torch multiplies fp32 matrices with MKL, which takes a slower path on non-Intel CPUs, and repacks bf16 weights in every
call. Large models therefore use oneDNN, in training too (`speed_up`), and `packed_linears` uses weights that are packed
only once. Results are equal up to rounding.
"""

from __future__ import annotations

import functools
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from transformers import pytorch_utils

from tellapart.models.precision import multiplies_in_bf16

MOST_BYTES = 2**31  # maximum total size of packed copies; layers beyond this limit use their original weights
PACKED_ROWS = 16  # number of input rows for which copies are packed; other numbers of rows work, too
# Modules in transformers whose first layer is followed only by an activation, so that oneDNN can fuse the two.
ACTIVATED = {
    "BlipMLP": ("fc1", "activation_fn"),
    "Blip2MLP": ("fc1", "activation_fn"),
    "BlipTextIntermediate": ("dense", "intermediate_act_fn"),
    "BertIntermediate": ("dense", "intermediate_act_fn"),
    "ViTIntermediate": ("dense", "intermediate_act_fn"),
}


class OneDnnLinear:
    """Replaces the fp32 forward pass of ``nn.Linear`` or transformers' ``Conv1D`` on a CPU with oneDNN.

    The replacement is differentiable. MKL, which torch uses for fp32, takes a slower path on non-Intel CPUs.
    """

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        module = self.module
        if not multiplies_by_onednn(x, module.weight):
            plain: torch.Tensor = type(module).forward(module, x)
            return plain
        weight_NK = module.weight if isinstance(module, torch.nn.Linear) else module.weight.T
        return onednn_linear(x, weight_NK, module.bias)


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
    for module in list(model.modules()):
        if "forward" not in vars(module) and packs(module):
            cast(Any, module).forward = OneDnnLinear(module)
        for name, child in module.named_children():
            if type(child).__name__ == "NewGELUActivation":
                setattr(module, name, torch.nn.GELU("tanh"))


LARGE = 2**24  # minimum number of weights for using oneDNN (64 MB in fp32), so that small models' sums keep their order


def linear(x: torch.Tensor, weight_NK: torch.Tensor, bias_N: torch.Tensor | None = None) -> torch.Tensor:
    """Computes ``F.linear``. Like `OneDnnLinear`, uses oneDNN for large fp32 layers on a CPU with AVX512."""
    if weight_NK.numel() >= LARGE and multiplies_by_onednn(x, weight_NK):
        return onednn_linear(x, weight_NK, bias_N)
    return F.linear(x, weight_NK, bias_N)


def onednn_linear(x: torch.Tensor, weight_NK: torch.Tensor, bias_N: torch.Tensor | None) -> torch.Tensor:
    """Computes ``F.linear`` in fp32 on a CPU with oneDNN. Does not support double backward.

    weight_NK: N×K, or a transposed view of K×N weights.
    """
    product: torch.Tensor = product_function().apply(x, weight_NK, bias_N)
    return product


@functools.cache
def product_function() -> Any:
    """Returns the `torch.autograd.Function` for `onednn_linear`, which is created on first use."""

    class Product(torch.autograd.Function):
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
            return (
                multiply(grad, weight_NK.T) if wants_x else None,
                to_weight_NK,
                grad_MN.sum(0) if wants_bias else None,
            )

    return Product


def multiply(x: torch.Tensor, weight_NK: torch.Tensor, bias_N: torch.Tensor | None = None) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight_NK, bias_N, "none", [], "")
    return product


class PackedLinear:
    """Replaces the forward pass of ``nn.Linear`` or transformers' ``Conv1D`` when no gradient is needed.

    When a gradient is needed, calls the original forward pass. ``copied``: whether to pack the weights into a copy on
    the first call. ``gelu``: whether to fuse the layer with GELU (using the error function).
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
            self.weight_NK = (
                torch.ops.mkldnn._reorder_linear_weight(weight_NK, PACKED_ROWS) if self.copied else weight_NK
            )
        after: tuple[str, list[float], str] = ("gelu", [], "none") if self.gelu else ("none", [], "")
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight_NK, module.bias, *after)
        return product


@contextmanager
def packed_linears(model: torch.nn.Module) -> Iterator[None]:
    """Within the context, replaces the linear layers of ``model`` with `PackedLinear` where that is faster.

    This is the case on x86 CPUs in fp32, and in bf16 if the CPU supports it. The weights must not change within the
    context. Threads may share a model; the last thread to exit restores the layers.
    """
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
    """A model's modules whose forward pass has been replaced, and the number of threads that use them."""

    changed: list[tuple[torch.nn.Module, OneDnnLinear | None]]
    threads: int = 0


_LOCK = threading.Lock()
_IN_USE: dict[torch.nn.Module, _Use] = {}


def _replaced(model: torch.nn.Module) -> list[tuple[torch.nn.Module, OneDnnLinear | None]]:
    """Replaces the forward passes of a model's modules. Returns each replaced module with its previous replacement, or
    None.
    """
    changed: list[tuple[torch.nn.Module, OneDnnLinear | None]] = []
    room = MOST_BYTES
    try:
        for module in model.modules():
            before = vars(module).get("forward")
            if isinstance(before, OneDnnLinear | None) and packs(module):
                weight: torch.Tensor = cast(Any, module).weight
                room -= weight.numel() * weight.element_size()
                if room >= 0 or (weight.dtype == torch.float32 and isinstance(module, torch.nn.Linear)):
                    cast(Any, module).forward = PackedLinear(module, copied=room >= 0)
                    changed.append((module, before))
        fused = [activation for module in model.modules() if (activation := fused_activation(module)) is not None]
        changed += [(activation, None) for activation in fused]
    except BaseException:
        _give_back(changed)
        raise
    return changed


def _give_back(changed: list[tuple[torch.nn.Module, OneDnnLinear | None]]) -> None:
    for module, before in changed:
        del cast(Any, module).forward
        if before is not None:
            cast(Any, module).forward = before


def fused_activation(module: Any) -> torch.nn.Module | None:
    """Returns the activation that the `PackedLinear` of a module in `ACTIVATED` can fuse, or None."""
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
    """Returns True if `PackedLinear` can replace a module's forward pass."""
    if type(module) not in (torch.nn.Linear, pytorch_utils.Conv1D):
        return False
    weight: torch.Tensor = cast(Any, module).weight
    if weight.device.type != "cpu" or not has_onednn():
        return False
    if weight.dtype == torch.bfloat16:
        return multiplies_in_bf16(weight.device) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32


@functools.cache
def has_onednn() -> bool:
    """Returns True if this is an x86 CPU and torch has the linear-layer operators that torch.compile uses on x86."""
    if platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available():
        return False
    operators: tuple[Callable[[], Any], ...] = (
        lambda: torch.ops.mkldnn._reorder_linear_weight.default,
        lambda: torch.ops.mkldnn._linear_pointwise.default,
    )
    try:
        return all(operator() is not None for operator in operators)
    except AttributeError:
        return False
