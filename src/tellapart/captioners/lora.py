"""LoRA (Hu et al. 2021) for training captioners (paper 2's SR-L, SR-V, SR-LV)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from transformers import pytorch_utils

from tellapart.errors import UsageError
from tellapart.models.protocols import CaptionerLike


def is_lora_weight(name: str) -> bool:
    """Returns True if ``name`` is the name of a LoRA parameter."""
    return ".lora_" in name


def is_lora_layer(module: torch.nn.Module) -> bool:
    """Returns True if ``module`` is a LoRA layer. Does not import peft, because importing it takes 0.4 s."""
    return hasattr(module, "lora_A") and hasattr(module, "get_base_layer")


def merged_weights(model: torch.nn.Module) -> dict[str, torch.Tensor] | None:
    """Returns the weights with LoRA merged, W + ΔW, under their original names. Does not change the model.

    Returns None if the model has no LoRA layers.
    """
    adapted: dict[str, Any] = {name: layer for name, layer in model.named_modules() if is_lora_layer(layer)}
    if not adapted:
        return None
    state = model.state_dict()
    with torch.no_grad():
        for name, layer in adapted.items():
            key = f"{name}.base_layer.weight"
            state[key] = state[key] + layer.get_delta_weight("default").to(state[key].dtype)
    return {name.replace(".base_layer.", "."): tensor for name, tensor in state.items() if not is_lora_weight(name)}


# As in paper 2's code: the attention layers of GPT-2 and (without the output projection) of CLIP's vision encoder.
ATTENTION = ("c_attn", "attn.c_proj", "q_proj", "k_proj", "v_proj")
MODULES = (*ATTENTION, "fc1", "fc2")
ALL_LINEAR: Literal["all-linear"] = "all-linear"  # peft's keyword


def add_lora(
    captioner: CaptionerLike,
    parts: Sequence[str],
    *,
    rank: int = 32,
    alpha: int = 16,
    modules: Sequence[str] | Literal["all-linear"] = MODULES,
) -> None:
    """Adds LoRA, ΔW = alpha/rank · B·A, to ``modules`` in these ``parts``, in place: A ~ N(0, 1), B = 0, no dropout.

    ``modules``: suffixes of layer names, or ``all-linear`` for every linear layer except the output layer. The default
    names follow paper 2's code. In parts whose attention layers have other names (BLIP, GIT, T5, the vision encoders of
    Qwen-VL), the default adapts all linear layers. Because B = 0, outputs do not change until training. After training,
    the captioner's ``save`` writes merged weights. Raises `UsageError` if a part has no such layer.
    """

    from peft import LoraConfig, inject_adapter_in_model

    chosen = {part: target_layers(captioner, part, modules) for part in parts}  # raises before anything is changed
    for part, layers in chosen.items():
        module = captioner.parts()[part]
        transposed = any(type(layer).__name__ == "Conv1D" for layer in layers.values())  # GPT-2's linear layers
        settings = LoraConfig(r=rank, lora_alpha=alpha, target_modules=sorted(layers), fan_in_fan_out=transposed)
        inject_adapter_in_model(settings, module)
        for name, parameter in module.named_parameters():
            if ".lora_A." in name:
                torch.nn.init.normal_(parameter)  # peft's "gaussian" is 1/rank of this
    check_output_layer(captioner)


def target_layers(
    captioner: CaptionerLike, part: str, modules: Sequence[str] | Literal["all-linear"]
) -> dict[str, torch.nn.Module]:
    """Returns the layers in a part that LoRA adapts, by name. Raises `UsageError` if the part has no such layers."""
    module = captioner.parts()[part]
    if modules == ALL_LINEAR:
        return linear_layers(captioner, part)
    layers = {name: layer for name, layer in module.named_modules() if not list(layer.children())}
    if tuple(modules) == MODULES and not ending_in(layers, ATTENTION):
        return linear_layers(captioner, part)
    if chosen := ending_in(layers, modules):
        return chosen
    ends = sorted({name.rpartition(".")[2] for name in layers})
    raise UsageError(
        f"captioner.lora.modules: no layer in {part} of {captioner.name} is named {' or '.join(modules)}; its layer "
        f"names end in {', '.join(ends)}; choose from these names, or set captioner.lora.modules = 'all-linear'"
    )


def check_output_layer(captioner: CaptionerLike) -> None:
    """Raises `UsageError` if LoRA adapts the output layer and `Captioner.head` would bypass it."""

    head = captioner.head()
    for name, layer in captioner.model.named_modules():
        if is_lora_layer(layer) and head is not None and layer.get_base_layer().weight is head[0]:
            raise UsageError(
                f"captioner.lora.modules: {name} is the output layer of {captioner.name}, which LoRA cannot train "
                "because its weights are used directly; remove the layer from modules, or train the part without LoRA"
            )


def ending_in(layers: dict[str, torch.nn.Module], endings: Sequence[str]) -> dict[str, torch.nn.Module]:
    dotted = tuple(f".{ending}" for ending in endings)
    return {name: layer for name, layer in layers.items() if f".{name}".endswith(dotted)}


def linear_layers(captioner: CaptionerLike, part: str) -> dict[str, torch.nn.Module]:
    """Returns all linear layers in a part, by name.

    Omits layers whose weights are read directly, which would bypass LoRA: the output layer, and layers inside
    `torch.nn.MultiheadAttention`.
    """
    module, output = captioner.parts()[part], output_weight(captioner)
    attentions = [name for name, each in module.named_modules() if isinstance(each, torch.nn.MultiheadAttention)]
    layers: dict[str, torch.nn.Module] = {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, torch.nn.Linear | pytorch_utils.Conv1D)
        and layer.weight is not output
        and name.rpartition(".")[0] not in attentions
    }
    if not layers:
        raise UsageError(
            f"{part} of {captioner.name} has no linear layer that LoRA can adapt (other than an output layer); remove "
            f"[captioner.lora] or --lora to train {part} without LoRA"
        )
    return layers


def output_weight(captioner: CaptionerLike) -> torch.Tensor | None:
    """Returns the weights V×H of the output layer."""
    if (head := captioner.head()) is not None:
        return head[0]
    layer_of = getattr(captioner.model, "get_output_embeddings", None)
    return getattr(layer_of() if layer_of else None, "weight", None)
