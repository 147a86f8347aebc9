"""Loads adapters saved by PEFT: reads their settings, finds their base model, and merges their weights."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from tellapart.errors import TellapartError, UsageError
from tellapart.models.loading_errors import loading_errors
from tellapart.models.saved import load_tokenizer
from tellapart.utils.strict_json import parse_json

ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def is_adapter_folder(name: str) -> bool:
    """Returns True if ``name`` is a folder with a PEFT adapter and without a complete model."""
    folder = Path(name).expanduser()
    return (folder / ADAPTER).is_file() and not (folder / "config.json").is_file()


def base_of_adapter(folder: Path, named: str | None) -> str:
    """Returns the name of the adapter's base captioner: ``named`` if given, or else the name in its configuration.

    Raises `TellapartError` if the adapter's folder is invalid, and `UsageError` if its base is unknown or an adapter.
    """
    settings = parse_json((folder / ADAPTER).read_text(encoding="utf-8"))
    if not isinstance(settings, dict) or not isinstance(settings.get("base_model_name_or_path"), str | None):
        raise TellapartError(f"{folder / ADAPTER} is not a valid adapter configuration; expected a file saved by PEFT")
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise TellapartError(f"{folder} does not contain {ADAPTER_WEIGHTS}; expected an adapter saved by PEFT or TRL")
    if settings.get("megatron_config"):
        raise TellapartError(f"{folder / ADAPTER} uses Megatron layers, which are not supported")
    base: str | None = named or settings.get("base_model_name_or_path")
    if not base:
        raise UsageError(f"{folder} is an adapter that does not name its base model; use '{folder}?base_model=NAME'")
    if is_adapter_folder(base):
        raise UsageError(
            f"{folder} is an adapter for {base}, which is itself an adapter; expected a complete captioner as its base"
        )
    return base


def merge_adapter(model: torch.nn.Module, folder: Path) -> None:
    """Merges a PEFT adapter into ``model`` in place. Raises `TellapartError` if the adapter does not fit the model."""
    from peft import PeftModel, get_peft_model_state_dict

    wants_gradient = [parameter.requires_grad for parameter in model.parameters()]
    with loading_errors(str(folder), "an adapter whose weights fit its base model"):
        check_vocabulary(model, folder)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Found missing adapter keys")  # raised as an error below
            adapted: Any = PeftModel.from_pretrained(model, str(folder))
        given = set(shapes_in(folder))
        expected = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
        stray = given - expected - set(adapted.state_dict())
        for what, keys in (
            ("lacks {} of the weights of an adapter for", expected - given),
            ("contains {} weights that do not belong to an adapter for", stray),
        ):
            if keys:
                raise TellapartError(f"{folder} {what.format(len(keys))} {type(model).__name__} ({min(keys)}, …)")
        if not hasattr(adapted.base_model, "merge_and_unload"):
            raise TellapartError(f"{folder}: a {adapted.peft_config['default'].peft_type} adapter cannot be merged")
        adapted.merge_and_unload()
    for parameter, wants in zip(model.parameters(), wants_gradient, strict=True):
        parameter.requires_grad_(wants)


def tokenizer_of_adapter(folder: Path, model: Any, own: Any) -> Any:
    """Returns the adapter's tokenizer if it has tokens that the base model's tokenizer lacks; otherwise returns
    ``own``, the base model's tokenizer.

    Adds embedding rows for these tokens to the base ``model``. Raises `TellapartError` if the adapter's tokenizer is
    not the base model's tokenizer with extra tokens at the end, or if the adapter does not contain the embeddings of
    the extra tokens.
    """
    if not (folder / "tokenizer_config.json").is_file():
        return own
    with loading_errors(str(folder), "its base model's tokenizer, with the tokens that were added"):
        tokenizer = load_tokenizer(str(folder))
    before, after = own.get_vocab(), tokenizer.get_vocab()
    if before == after:
        return own
    if moved := sorted(token for token, id_ in before.items() if after.get(token) != id_):
        raise TellapartError(
            f"{folder} has a different tokenizer than its base: {len(moved):,} of the base's tokens are missing or "
            f"have a different id (first: {moved[0]!r}); expected the base's tokens, followed by new tokens"
        )
    tables, needed = embedding_rows(model), max(after.values()) + 1
    if needed > min(tables.values()):
        saved = saved_rows(folder, tables, r"(base_layer\.)?weight")
        lacking = [end for end in tables if saved.get(end, 0) < needed]
        if lacking and not (len(lacking) < len(tables) and model.config.tie_word_embeddings):
            added = sorted(after.keys() - before.keys())
            raise TellapartError(
                f"{folder} has a tokenizer with {needed:,} tokens, but its base has only {min(tables.values()):,} word "
                f"embeddings, and the adapter does not contain {' and '.join(lacking)} for the {len(added):,} added "
                f"tokens ({', '.join(added[:3])}, …); save the adapter again with model.save_pretrained(FOLDER, "
                "save_embedding_layers=True)"
            )
        model.resize_token_embeddings(max(saved.values()), mean_resizing=False)
    return tokenizer


def check_vocabulary(model: Any, folder: Path) -> None:
    """Raises `TellapartError` if the adapter was trained with a different number of tokens than its base model has."""
    tables = embedding_rows(model)
    for end, tokens in saved_rows(folder, tables, r"(base_layer\.)?weight|lora_B\.weight|lora_embedding_A").items():
        if tokens != tables[end]:
            raise TellapartError(
                f"{folder} has {tokens:,} word embeddings, but its base has {tables[end]:,}: tokens were added before "
                f"training, but {folder} does not contain the tokenizer with these tokens; save the tokenizer with "
                f"tokenizer.save_pretrained('{folder}')"
            )


def embedding_rows(model: Any) -> dict[str, int]:
    """Returns the numbers of rows of the layers with one row per token, keyed by the last part of their names."""
    getters = [getattr(model, f"get_{which}_embeddings", None) for which in ("input", "output")]
    layers = [layer for get in getters if get is not None and (layer := get()) is not None]
    return {name.rpartition(".")[2]: len(each.weight) for name, each in model.named_modules() if each in layers}


def saved_rows(folder: Path, layers: Iterable[str], weights: str) -> dict[str, int]:
    """Returns the largest number of tokens of each of these layers in the adapter, if it contains the layer.

    layers: see `embedding_rows`. weights: pattern of the names of a layer's weights.
    """
    pattern = re.compile(rf"\.({'|'.join(map(re.escape, layers))})\.({weights})$")
    rows: dict[str, int] = {}
    for key, shape in shapes_in(folder).items():
        if match := pattern.search(key):
            rows[match[1]] = max(rows.get(match[1], 0), shape[1 if key.endswith("lora_embedding_A") else 0])
    return rows


def shapes_in(folder: Path) -> dict[str, list[int]]:
    """Returns the shapes of the adapter's tensors by name."""
    with safe_open(folder / ADAPTER_WEIGHTS, "pt") as file:
        return {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118 (no mapping)
