"""Linear layers of a model in inference on a CPU, multiplied by oneDNN from weights that it has arranged once.

torch multiplies fp32 by MKL, which takes its slower path on CPUs that are not Intel's, and arranges bf16 weights anew
at every call, which costs more than multiplying a few rows. What is computed is the same but for rounding.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F

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
    """Whether `PackedLinear` can stand for a module's forward."""
    from transformers.pytorch_utils import Conv1D

    from tellapart.models.device import multiplies_in_bf16

    if type(module) not in (torch.nn.Linear, Conv1D) or platform.machine() not in ("x86_64", "AMD64"):
        return False
    weight: torch.Tensor = cast(Any, module).weight
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available() or not _has_operators():
        return False
    return weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and multiplies_in_bf16(weight.device))


def _has_operators() -> bool:
    """Whether this torch has what its compiler calls for linear layers on a CPU."""
    operators: tuple[Callable[[], Any], ...] = (
        lambda: torch.ops.mkldnn._reorder_linear_weight.default,
        lambda: torch.ops.mkldnn._linear_pointwise.default,
    )
    try:
        return all(operator() is not None for operator in operators)
    except AttributeError:
        return False
