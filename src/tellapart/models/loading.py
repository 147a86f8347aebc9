"""Where a model's name leads: a folder, a finished run, a hub name, or one that ships with the package."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tellapart.errors import TellapartError, UsageError
from tellapart.models.hub import check_name
from tellapart.utils.files import check_sums, sha256
from tellapart.utils.messages import say, say_once

if TYPE_CHECKING:
    from tellapart.types import Item

_FOR_PHOTOS = {"captioner": "Salesforce/blip-image-captioning-base", "scorer": "openai/clip-vit-base-patch32"}
BUILTIN = Path(__file__).parents[1] / "scenes" / "weights"


def model_folder(name: str, kind: str) -> str:
    """The folder (or hub name) behind ``name``; ``kind`` is 'captioner' or 'scorer'.

    ``scenes`` is the model that ships with the package; a run folder stands for the model it made.
    """
    if name == "scenes":
        return str(BUILTIN / kind)
    folder = Path(name).expanduser()
    if name.endswith(".toml"):
        raise UsageError(f"{name} is a recipe, not a {kind}; type: tellapart train {name}, then give its run's folder")
    if not name or folder.is_file():
        raise UsageError(f"'{name}' is no {kind}; expected a folder, a run, a hub name, or 'scenes'")
    if (folder / "run.json").is_file():
        if not (folder / "model" / "config.json").is_file():
            raise UsageError(f"{name} is a run without a finished model; type: tellapart train --resume … to finish it")
        return str(folder / "model")
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UsageError(f"{name} holds no config.json; expected a folder that save_pretrained wrote, or a run")
        return str(folder)
    if name.count("/") > 1 or name.startswith((".", "/", "~")) or name.endswith((".pt", ".pth", ".bin")):
        raise UsageError(f"no such model folder: {name}; expected a folder, a run, a hub name, or 'scenes'")
    return name


def warn_outside_scenes(name: str | None, items: Sequence[Item], kind: str) -> None:
    """Say once that ``scenes``, as a captioner or a scorer, knows no other pictures than those of its own world."""
    if name is not None and name.partition("?")[0] == "scenes" and any(item.truth is None for item in items[:1]):
        say_once(
            f"warning: the {kind} 'scenes' has seen only its own synthetic world; what it makes of other pictures "
            f"means nothing. Name a {kind} for photos, such as {_FOR_PHOTOS[kind]}"
        )


def checked_model_folder(name: str, kind: str) -> str:
    """As `model_folder`, for a model that is loaded now: a folder's checksums are compared, and the hub is asked once
    whether it has the name, so that one that is nowhere costs no retries."""
    where = model_folder(name, kind)
    check_name(where, kind)
    check_sums(Path(where))
    return where


def load_whole(cls: Any, folder: str, **settings: Any) -> Any:
    """``cls.from_pretrained``, safetensors only. Raises `TellapartError` where weights are missing.

    Transformers makes those at random, with a table of their names: a captioner then writes noise.
    """
    model, report = load_reported(cls, folder, **settings)
    check_whole(folder, model, report, "; expected a whole captioner of that kind")
    return model


def load_reported(cls: Any, folder: str, **settings: Any) -> tuple[Any, Mapping[str, Any]]:
    """A model with transformers' report of its weights, for `check_whole`, in place of the table that it prints."""
    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(is_no_report)
    try:
        model, report = cls.from_pretrained(
            folder, use_safetensors=True, trust_remote_code=False, output_loading_info=True,
            ignore_mismatched_sizes=True, **settings,
        )  # fmt: skip
    finally:
        logger.removeFilter(is_no_report)
    return model, report


def check_whole(name: str, model: Any, report: Mapping[str, Any], then: str) -> None:
    """Raises `TellapartError` where the loading ``report`` names missing weights or others of another shape, and prints
    how many were left out; ``then``: how the error's line goes on."""
    kind = type(model).__name__
    if others := sorted(report["mismatched_keys"]):
        key, found, expected = others[0]
        told = f"{name}: {len(others)} weights have other shapes than its config.json says ({key} is {tuple(found)}, "
        raise TellapartError(f"{told}expected {tuple(expected)}){then}")
    if missing := sorted(report["missing_keys"]):
        raise TellapartError(f"{name} lacks {len(missing)} weights of a {kind} ({missing[0]}, …){then}")
    if stray := sorted(report["unexpected_keys"]):
        say(f"{name}: left out {len(stray)} weights that a {kind} does not have, such as {stray[0]}")


def files_digest(name: str, kind: str) -> str | None:
    """A hash of the files that ``name`` would be loaded from, without loading it; None where they are not on disk."""
    try:
        folder = Path(model_folder(name, kind))
    except UsageError:
        return None  # a published checkpoint, or code of one's own
    if not folder.is_dir():
        from huggingface_hub import try_to_load_from_cache

        config = try_to_load_from_cache(name, "config.json") if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) else None
        if not isinstance(config, str):
            return None
        folder = Path(config).parent
    files = sorted(
        file for file in folder.iterdir() if file.suffix in (".json", ".safetensors", ".txt", ".model", ".jinja")
    )
    lines = [f"{sha256(file)}  {file.name}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def silence_transformers() -> None:
    """No bars of transformers' own for the moment that loading or saving takes, and no advice about padding."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    logging.getLogger("transformers.modeling_utils").addFilter(is_news)


def is_news(record: logging.LogRecord) -> bool:
    """False for the advice to mask padding, which comes whenever one caption of a batch ends before the others."""
    return "passing in an `attention_mask`" not in record.getMessage()


def is_no_report(record: logging.LogRecord) -> bool:
    """False for the table of weights that are missing, unknown or of another shape."""
    return "LOAD REPORT" not in record.getMessage()


@contextmanager
def loading_errors(name: str, expected: str) -> Iterator[None]:
    """Turn what a loader raises into one line that says what to do."""
    silence_transformers()
    try:
        yield
    except (TellapartError, MemoryError):
        raise
    except Exception as error:  # loaders of other libraries raise anything, plain Exception among it
        if "trust_remote_code" in str(error):
            raise TellapartError(
                f"{name} comes with code of its own to run, which tellapart does not do; expected a model that "
                "transformers knows; or write a captioner of your own around it (docs/captioners.md)"
            ) from error
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        hub = "" if Path(name).exists() or name == "scenes" else f": there is no such folder, and from the hub{offline}"
        raise TellapartError(f"cannot load {name}{hub}: {cause[:240].rstrip('.')}; expected {expected}") from error
