"""Which weights LoRA added, and the weights with LoRA merged in: our own, and those of a PEFT adapter's folder."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from tellapart.errors import TellapartError, UsageError
from tellapart.models.loading import loading_errors
from tellapart.utils.text import parse_json

ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


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


def adapter_settings(folder: Path) -> dict[str, Any] | None:
    """The configuration of a PEFT adapter that lies in ``folder``, without its base; None where there is none."""
    if not (folder / ADAPTER).is_file() or (folder / "config.json").is_file():
        return None
    settings = parse_json((folder / ADAPTER).read_text(encoding="utf-8"))
    if not isinstance(settings, dict) or not isinstance(settings.get("base_model_name_or_path"), str | None):
        raise TellapartError(f"{folder / ADAPTER}: not the configuration of an adapter as PEFT saves it")
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise TellapartError(f"{folder} holds no {ADAPTER_WEIGHTS}; expected an adapter that PEFT or TRL saved")
    if settings.get("megatron_config"):
        raise TellapartError(f"{folder / ADAPTER} is of Megatron's layers, which are not loaded here")
    return settings


def base_of_adapter(folder: Path, settings: dict[str, Any], named: str | None) -> str:
    """The captioner that the adapter changes: the one ``named``, else the one that its configuration names."""
    base = named or settings.get("base_model_name_or_path")
    if not base:
        raise UsageError(f"{folder} is an adapter that names no base; type '{folder}?base_model=NAME'")
    if (Path(base).expanduser() / ADAPTER).is_file() and not (Path(base).expanduser() / "config.json").is_file():
        raise UsageError(f"{folder} is an adapter of {base}, which is an adapter itself; expected a whole captioner")
    return str(base)


def merge_adapter(model: torch.nn.Module, folder: Path) -> None:
    """Merge a PEFT adapter into ``model``, in place. Raises `TellapartError` where the two do not fit together."""
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors import safe_open

    wants_gradient = [parameter.requires_grad for parameter in model.parameters()]
    with loading_errors(str(folder), "an adapter whose weights fit its base"):
        with safe_open(folder / ADAPTER_WEIGHTS, "pt") as file:
            given = set(file.keys())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Found missing adapter keys")  # an error below
            adapted: Any = PeftModel.from_pretrained(model, str(folder))
        wanted = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
        stray = given - wanted - set(adapted.state_dict())
        for what, keys in (("lacks", wanted - given), ("also has", stray)):
            if keys:
                kind = type(model).__name__
                raise TellapartError(
                    f"{folder} {what} {len(keys)} weights of an adapter of this {kind} ({min(keys)}, …)"
                )
        if not hasattr(adapted.base_model, "merge_and_unload"):
            raise TellapartError(f"{folder}: a {adapted.peft_config['default'].peft_type} adapter cannot be merged")
        adapted.merge_and_unload()
    for parameter, wants in zip(model.parameters(), wants_gradient, strict=True):
        parameter.requires_grad_(wants)
