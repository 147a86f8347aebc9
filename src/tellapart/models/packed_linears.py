"""Runs linear layers without gradients on a CPU, with weights that are packed for oneDNN only once.

Torch repacks bf16 weights in every call. Results are equal up to rounding.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F

from tellapart.models.onednn import OneDnnLinear, packs

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
