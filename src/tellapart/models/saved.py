"""Loads models from folders, after checking that they are complete and unchanged."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers

from tellapart.errors import TellapartError
from tellapart.models.hub_names import check_name
from tellapart.models.names import model_folder
from tellapart.models.quiet_transformers import is_no_report
from tellapart.utils.checksums import check_sums
from tellapart.utils.messages import say
from tellapart.utils.strict_json import parse_json


def check_shards(folder: Path) -> None:
    """Raises `TellapartError` if a weights index names a file outside its folder."""
    for index in folder.glob("*.index.json"):
        try:
            files = set(parse_json(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue  # the error is reported when the model is loaded
        for name in files:
            if not isinstance(name, str) or Path(name).name != name:
                raise TellapartError(
                    f"{index} refers to weights '{name}' outside its folder; expected the name of a file in the same "
                    "folder"
                )


def checked_model_folder(name: str, kind: str) -> str:
    """Returns the same as `model_folder`, after checking a model that is about to be loaded.

    Verifies a folder's checksums. For a hub name, checks once whether the model exists, which avoids retries if it does
    not.
    """
    where = model_folder(name, kind)
    check_name(where, kind)
    check_shards(Path(where))
    check_sums(Path(where))
    return where


def load_config(where: str) -> Any:
    """Loads a model's configuration."""
    return transformers.AutoConfig.from_pretrained(where, trust_remote_code=False)


def load_tokenizer(where: str) -> Any:
    """Loads a model's tokenizer. A tokenizer without a padding token pads with its end token."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_processor(where: str) -> Any:
    """Loads a model's image processor, which uses PIL."""
    return transformers.AutoImageProcessor.from_pretrained(where, backend="pil", trust_remote_code=False)


def load_whole(cls: Any, folder: str, **settings: Any) -> Any:
    """Calls ``cls.from_pretrained`` with safetensors only. Raises `TellapartError` if weights are missing.

    Otherwise, transformers would initialize missing weights randomly and only print their names, so captions would be
    noise.
    """
    model, report = load_reported(cls, folder, **settings)
    check_whole(folder, model, report, "; expected a complete model of that kind")
    return model


def load_reported(cls: Any, folder: str, **settings: Any) -> tuple[Any, Mapping[str, Any]]:
    """Loads a model. Returns the model and transformers' loading report (for `check_whole`), which is not printed."""
    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(is_no_report)
    settings |= {"use_safetensors": True, "output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        model, report = cls.from_pretrained(folder, trust_remote_code=False, **settings)
    finally:
        logger.removeFilter(is_no_report)
    return model, report


def check_whole(name: str, model: Any, report: Mapping[str, Any], then: str) -> None:
    """Raises `TellapartError` if ``report`` lists missing or mismatched weights. Prints how many weights were ignored.

    ``then``: the end of the error message.
    """
    kind = type(model).__name__
    if others := sorted(report["mismatched_keys"]):
        key, shape, expected = others[0]
        told = f"{name}: {len(others)} weights do not have the shapes in its config.json ({key} is {tuple(shape)}, "
        raise TellapartError(f"{told}expected {tuple(expected)}){then}")
    if missing := sorted(report["missing_keys"]):
        raise TellapartError(f"{name} lacks {len(missing)} weights of a {kind} ({missing[0]}, …){then}")
    if stray := sorted(report["unexpected_keys"]):
        say(f"{name}: ignored {len(stray)} weights that do not belong to a {kind} (first: {stray[0]})")
