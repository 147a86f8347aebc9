"""Which weights LoRA added, and the weights with LoRA merged in."""

from __future__ import annotations

from typing import Any

import torch


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name is of LoRA's."""
    return ".lora_" in name


def merged_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights as if each W were W + ΔW and LoRA had never been; the model itself stays as it is."""
    from peft.tuners.lora import LoraLayer

    state = model.state_dict()
    adapted: dict[str, Any] = {name: layer for name, layer in model.named_modules() if isinstance(layer, LoraLayer)}
    with torch.no_grad():
        for name, layer in adapted.items():
            key = f"{name}.base_layer.weight"
            state[key] = state[key] + layer.get_delta_weight("default").to(state[key].dtype)
    return {name.replace(".base_layer.", "."): tensor for name, tensor in state.items() if not is_adapter(name)}
