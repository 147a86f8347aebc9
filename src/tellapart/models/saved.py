"""Loads models from folders, after checking that they are complete and unchanged. Errors take one line."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import transformers
from transformers.utils.logging import disable_progress_bar

from tellapart.errors import TellapartError
from tellapart.models.names import check_name, model_folder
from tellapart.utils.checksums import check_sums
from tellapart.utils.documentation import page_url
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
    check_whole(folder, model, report, "; expected a complete captioner of that kind")
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


def silence_transformers() -> None:
    """Disables transformers' progress bars for loading and saving, and its warning about padding."""

    disable_progress_bar()
    logging.getLogger("transformers.modeling_utils").addFilter(is_news)


def is_news(record: logging.LogRecord) -> bool:
    """Filters out the warning about unmasked padding, which appears whenever captions in a batch end at different
    steps.
    """
    return "passing in an `attention_mask`" not in record.getMessage()


def is_no_report(record: logging.LogRecord) -> bool:
    """Filters out the table of missing, unknown and mismatched weights."""
    return "LOAD REPORT" not in record.getMessage()


@contextmanager
def loading_errors(name: str, expected: str) -> Iterator[None]:
    """Converts a loader's exceptions to one-line errors that say what to do."""
    silence_transformers()
    try:
        yield
    except (TellapartError, MemoryError):
        raise
    except Exception as error:  # loaders can raise any exception
        if "trust_remote_code" in str(error):
            line = (
                f"{name} requires its own code, which tellapart does not run; use a model that transformers "
                f"supports, or write a captioner around it ({page_url('captioners.md')})"
            )
        elif "torchvision" in str(error).lower() and find_spec("torchvision") is None:
            line = (
                f"{name}: transformers needs torchvision to process this model's pictures, but it is not "
                "installed; run: pip install torchvision (a version compatible with your torch), or use another "
                "model family"
            )
        else:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            count = 2 if lines[0].rstrip().endswith(":") else 1  # the first line can be a heading
            cause = " ".join(" ".join(lines[:count]).split())
            offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
            here = Path(name).exists() or name == "scenes"
            hub = "" if here else f": there is no such folder, and from the hub{offline}"
            line = f"cannot load {name}{hub}: {cause[:240].rstrip('.')}; expected {expected}"
        raise TellapartError(line) from error
