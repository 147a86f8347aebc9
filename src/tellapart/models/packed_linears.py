"""Runs linear layers without gradients on a CPU, with weights that are packed for oneDNN only once.

Torch repacks bf16 weights in every call. Results are equal up to rounding.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F

from tellapart.models.onednn import OneDnnLinear, runs_on_onednn
from tellapart.models.replaced_forward import identity, replaced_forward

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


_LOCK = threading.Lock()
_IN_USE: dict[torch.nn.Module, tuple[ExitStack, int]] = {}  # replaced forward methods, and the number of threads


@contextmanager
def packed_linears(model: torch.nn.Module) -> Iterator[None]:
    """Within the context, replaces the linear layers of ``model`` with `PackedLinear` where that is faster.

    This is the case on x86 CPUs in fp32, and in bf16 if the CPU supports it. The weights must not change within the
    context. Threads may share a model; the last thread to exit restores the layers.
    """
    with _LOCK:
        replaced, threads = _IN_USE.get(model) or (_replace(model), 0)
        _IN_USE[model] = replaced, threads + 1
    try:
        yield
    finally:
        with _LOCK:
            replaced, threads = _IN_USE.pop(model)
            if threads > 1:
                _IN_USE[model] = replaced, threads - 1
            else:
                replaced.close()


def _replace(model: torch.nn.Module) -> ExitStack:
    """Replaces the forward passes of a model's modules until the stack is closed."""
    room = MOST_BYTES
    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(vars(module).get("forward"), OneDnnLinear | None) and runs_on_onednn(module):
                weight: Any = module.weight
                room -= weight.numel() * weight.element_size()
                if room >= 0 or (weight.dtype == torch.float32 and isinstance(module, torch.nn.Linear)):
                    stack.enter_context(replaced_forward(module, PackedLinear(module, copied=room >= 0)))
        for module in model.modules():
            if (activation := fused_activation(module)) is not None:
                stack.enter_context(replaced_forward(activation, identity))
        return stack.pop_all()


def fused_activation(module: Any) -> Any:
    """Returns the activation that the `PackedLinear` of a module in `ACTIVATED` can fuse, or None."""
    first, name = ACTIVATED.get(type(module).__name__, ("", ""))
    layer = getattr(module, first, None)
    activation: Any = getattr(module, name, None)
    exact = type(activation) is torch.nn.GELU and activation.approximate == "none"
    exact = exact or (type(activation).__name__ == "GELUActivation" and activation.act is F.gelu)
    packed = vars(layer).get("forward") if layer is not None else None
    if not exact or not isinstance(packed, PackedLinear) or "forward" in vars(activation):
        return None
    packed.gelu = True
    return activation
