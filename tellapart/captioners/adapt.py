"""How a captioner learns: LoRA (Hu et al. 2021) on its parts (paper 2's SR-L, SR-V, SR-LV), and checkpointed states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tellapart.captioners.base import Captioner
from tellapart.errors import UsageError

# Paper 2's program: attention of GPT-2; CLIP's vision without the output projection.
MODULES = ("c_attn", "attn.c_proj", "q_proj", "k_proj", "v_proj", "fc1", "fc2")


def add_lora(
    captioner: Captioner, parts: Sequence[str], *, rank: int = 32, alpha: int = 16, modules: Sequence[str] = MODULES
) -> None:
    """Puts ΔW = alpha/rank · B·A beside the ``modules`` of these ``parts``, in place: A ~ N(0, 1), B = 0, no dropout.

    ``modules``: how the names of layers end. B = 0, so nothing changes until it learns. The captioner's ``save``
    writes merged weights from now on. Raises `UsageError` for a part in which no layer has such a name.
    """
    from peft import LoraConfig, inject_adapter_in_model

    for part in parts:
        module = captioner.parts()[part]
        layers = {name: layer for name, layer in module.named_modules() if not list(layer.children())}
        chosen = [name for name in layers if any(f".{name}".endswith(f".{ending}") for ending in modules)]
        if not chosen:
            ends = sorted({name.rpartition(".")[2] for name in layers})
            raise UsageError(
                f"captioner.lora.modules: no layer of {part} of {captioner.name} is called {', '.join(modules)}; "
                f"its layers' names end in {', '.join(ends)}"
            )
        transposed = any(type(layers[name]).__name__ == "Conv1D" for name in chosen)  # GPT-2's linear layers
        settings = LoraConfig(r=rank, lora_alpha=alpha, target_modules=sorted(chosen), fan_in_fan_out=transposed)
        inject_adapter_in_model(settings, module)
        for name, parameter in module.named_parameters():
            if ".lora_A." in name:
                torch.nn.init.normal_(parameter)  # peft's own "gaussian" is 1/rank of it
    captioner.adapted = True


def checkpoint_states(captioner: Captioner) -> None:
    """The language model keeps the states between its blocks alone, and computes the others again for the gradient.

    Raises `UsageError` for a language model that cannot.
    """
    language_model: Any = captioner.parts()["language_model"]
    if not getattr(language_model, "supports_gradient_checkpointing", False):
        raise UsageError(
            f"training.checkpointing: the language model of {captioner.name} ({type(language_model).__name__}) cannot; "
            "leave it out, or part the batch with training.accumulate"
        )
    # Renamed within transformers 5; the older name goes with 6.
    enable = getattr(language_model, "activation_checkpointing_enable", language_model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})


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
