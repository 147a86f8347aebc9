"""Reads model folders: weights with checksums, and a captioner's options, decoding settings and levels of detail."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from transformers.utils.hub import cached_file
from transformers.utils.logging import disable_progress_bar

from tellapart.errors import TellapartError, UsageError
from tellapart.models.decoding import DEFAULT, Decoding
from tellapart.models.names import check_name, missing_on_hub, model_folder
from tellapart.utils.checksums import check_sums, sha256
from tellapart.utils.documentation import page_url
from tellapart.utils.messages import say
from tellapart.utils.strict_json import parse_json

OPTIONS_FILE = "tellapart.json"  # next to a captioner's config.json: its options, decoding settings and levels
Levels = tuple[tuple[float, str], ...]  # pairs of an amount of detail (0 to 1) and its prompt


def saved_options(where: str, from_hub: bool = False) -> dict[str, Any]:
    """Returns the options saved with a captioner. ``from_hub``: whether to download them if the name is on the hub.

    Raises `TellapartError` if the options file is invalid.
    """
    file: Path | None = Path(where) / OPTIONS_FILE
    if from_hub and not Path(where).is_dir():
        try:
            cached = cached_file(where, OPTIONS_FILE, _raise_exceptions_for_missing_entries=False)
        except OSError:
            cached = None  # the required files are cached, but this optional one is not
        file = Path(cached) if cached else None
    if file is None or not file.is_file():
        return {}
    try:
        saved = parse_json(file.read_text(encoding="utf-8"))
    except ValueError:
        saved = None
    if not isinstance(saved, dict):
        raise TellapartError(f"{file} is damaged: expected a JSON object; copy the folder again or remove the file")
    return saved


def levels_in(saved: Mapping[str, Any], name: str) -> Levels:
    """Returns the levels of detail in a captioner's saved options.

    Raises `TellapartError` if they are not pairs of a number and a prompt.
    """
    try:
        levels = tuple((float(value), str(prompt)) for value, prompt in saved.get("detail", ()))
        if all(0 <= value <= 1 for value, _ in levels):
            return levels
    except (TypeError, ValueError):
        pass
    raise TellapartError(
        f"{name}: detail in its {OPTIONS_FILE} is {saved['detail']!r:.80}; expected pairs of a number from 0 to 1 and "
        'a prompt, such as [[0.0, "briefly"], [1.0, ""]]; copy the folder again, or remove the key'
    )


def prompt_of_detail(levels: Levels, detail: float, name: str) -> str:
    """Returns the prompt for the level nearest to ``detail``; a tie selects the level that is listed first.

    Raises `UsageError` for a number outside [0, 1], and for a captioner that was not trained with levels of detail.
    """
    if not 0 <= detail <= 1:
        raise UsageError(f"{name}: detail is {detail:g}; expected a number from 0 (least) to 1 (most)")
    if not levels:
        raise UsageError(
            f"{name} was not trained with levels of detail; remove ?detail=, or train a captioner with "
            f"objective.detail ({page_url('concepts/truth.md')})"
        )
    return min(levels, key=lambda level: abs(level[0] - detail))[1]


def decoding_in(saved: Mapping[str, Any]) -> Decoding | None:
    """Returns the decoding settings in a captioner's saved options; None if there are none."""
    return Decoding.model_validate(saved["decoding"]) if "decoding" in saved else None


def saved_decoding(decoding: Decoding | None) -> dict[str, Any]:
    """Converts decoding settings to the form saved in `OPTIONS_FILE`, without the scorer's weight."""
    if decoding is None:
        return {}
    return {"decoding": decoding.model_copy(update={"scorer_weight": 0.0}).model_dump(exclude_defaults=True)}


def default_decoding(name: str) -> Decoding:
    """Returns the decoding settings saved with a captioner, without loading it, or `DEFAULT` if there are none.

    Downloads the options file for hub names.
    """
    try:
        place = model_folder(name.partition("?")[0], "captioner")
        named = place.count("/") == 1 and not Path(place).is_dir()
        saved = saved_options(place, from_hub=named and missing_on_hub(place) is None)
        return DEFAULT if not isinstance(saved, dict) else decoding_in(saved) or DEFAULT
    except (OSError, ValueError, UsageError):
        return DEFAULT  # tellapart did not write the folder; loading it reports errors


def check_shards(folder: Path) -> None:
    """Raises `TellapartError` if a weights index names a file outside its folder."""
    for index in folder.glob("*.index.json"):
        try:
            files = set(parse_json(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue  # loading reports the error
        for name in files:
            if not isinstance(name, str) or Path(name).name != name:
                raise TellapartError(
                    f"{index} refers to weights '{name}' outside its folder; expected the name of a file in the same "
                    "folder"
                )


def checked_model_folder(name: str, kind: str) -> str:
    """Like `model_folder`, for a model that is about to be loaded.

    Verifies a folder's checksums, or checks once whether the hub has the name, which avoids retries for missing models.
    """
    where = model_folder(name, kind)
    check_name(where, kind)
    check_shards(Path(where))
    check_sums(Path(where))
    return where


def load_whole(cls: Any, folder: str, **settings: Any) -> Any:
    """Calls ``cls.from_pretrained`` with safetensors only. Raises `TellapartError` if weights are missing.

    Transformers would initialize missing weights randomly and only print their names, so captions would be noise.
    """
    model, report = load_reported(cls, folder, **settings)
    check_whole(folder, model, report, "; expected a complete captioner of that kind")
    return model


def load_reported(cls: Any, folder: str, **settings: Any) -> tuple[Any, Mapping[str, Any]]:
    """Loads a model, and returns it with transformers' loading report (for `check_whole`), which is not printed."""
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
    """Raises `TellapartError` if the ``report`` lists missing or mismatched weights. Prints how many were ignored.

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


def files_digest(name: str, kind: str) -> str | None:
    """Hashes the files that ``name`` would be loaded from, without loading it; returns None if they are not on disk."""
    try:
        folder = Path(model_folder(name, kind))
    except UsageError:
        return None  # a published checkpoint or user code
    if not folder.is_dir():
        try:
            config = try_to_load_from_cache(name, "config.json")
        except ValueError:
            return None  # not a valid hub name
        if not isinstance(config, str):
            return None
        folder = Path(config).parent
    suffixes = (".json", ".safetensors", ".txt", ".model", ".jinja")
    files = sorted(file for file in folder.iterdir() if file.suffix in suffixes and file.is_file())
    lines = [f"{sha256(file)}  {file.name}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


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
            raise TellapartError(
                f"{name} requires its own code, which tellapart does not run; use a model that transformers "
                f"supports, or write a captioner around it ({page_url('captioners.md')})"
            ) from error
        if "torchvision" in str(error).lower() and find_spec("torchvision") is None:
            raise TellapartError(
                f"{name}: transformers needs torchvision to process this model's pictures, but it is not "
                "installed; run: pip install torchvision (a version compatible with your torch), or use another "
                "model family"
            ) from error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        cause = " ".join(" ".join(lines[:2] if lines[0].rstrip().endswith(":") else lines[:1]).split())  # a heading
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        hub = "" if Path(name).exists() or name == "scenes" else f": there is no such folder, and from the hub{offline}"
        raise TellapartError(f"cannot load {name}{hub}: {cause[:240].rstrip('.')}; expected {expected}") from error


NO_SETTINGS = ("transformers_version", "architectures", "dtype", "torch_dtype")  # keys that do not affect outputs


def settings_of(model: Any) -> str:
    """Returns the settings in a model's configuration that affect its outputs, as JSON; "" if it has none."""

    def kept(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            key: kept(entry) for key, entry in value.items() if key not in NO_SETTINGS and not str(key).startswith("_")
        }

    config: Any = getattr(model, "config", None)
    return json.dumps(kept(config.to_dict()), sort_keys=True, default=str) if hasattr(config, "to_dict") else ""


def weights_fingerprint(model: Any, processor: Any, view: str = "") -> str:
    """Hashes a model's weights (names, shapes, bytes), its image preprocessing, and ``view``."""
    digest = hashlib.blake2b(view.encode(), digest_size=12)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    preprocessing = {} if processor is None else processor.to_dict()
    digest.update(json.dumps(preprocessing, sort_keys=True, default=str).encode())
    return digest.hexdigest()
