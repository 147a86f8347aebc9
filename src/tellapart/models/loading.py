"""Finds models by name (a folder, a finished run, the hub, ``scenes``), checks what is loaded, and hashes it.

Whether the hub has a model of that name is asked once, before anything is downloaded.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tellapart.errors import TellapartError, UsageError
from tellapart.models.packages import PARTS, packaged_folder
from tellapart.utils.files import check_sums, parse_json, sha256
from tellapart.utils.messages import say, say_once

if TYPE_CHECKING:
    from tellapart.models.decoding import Decoding
    from tellapart.types import Item


OPTIONS_FILE = "tellapart.json"  # beside a captioner's config.json: its options, generation settings and levels
Levels = tuple[tuple[float, str], ...]  # amounts of detail, 0 to 1, each with the prompt that asks for it
SECONDS = 10.0  # for the one question
RUNS = Path("runs")
OWN = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4")
SHIPPED = "captioner", "scorer"  # kinds of which one ships with the package


def check_name(name: str, kind: str) -> None:
    """Raise where ``name`` is no folder, and no model of the hub either; ``kind`` is what it should be.

    Raises too where its configuration would have transformers load code (`check_attention`).

    One attempt, without retries. A model in the hub's cache passes where the hub cannot be reached. `UsageError` for
    what looks like a path, `TellapartError` for the rest: one line, near folder names first.
    """
    if Path(name).expanduser().is_dir():
        check_attention(name, Path(name).expanduser() / "config.json")
        return
    near = similar_folders(name)
    if "/" in name and Path(name.split("/")[0]).is_dir():
        expected = "a folder, a run, a hub name, or 'scenes'" if kind in SHIPPED else "a folder or a hub name"
        raise UsageError(f"no such model folder: {name}{near}; expected {expected}")
    if (why := missing_on_hub(name)) is not None:
        raise TellapartError(f"cannot load {name}: there is no such folder{near}, and {why}; expected a {kind}")
    from transformers.utils.hub import cached_file

    found = cached_file(name, "config.json", _raise_exceptions_for_connection_errors=False)
    if found is not None:
        check_attention(name, Path(found))


def is_server(name: str) -> bool:
    """Returns whether a captioner's name is that of a model behind a server."""
    return name.startswith("openai:")


def check_attention(name: str, config: Path) -> None:
    """Raises `TellapartError` where a model's configuration names an implementation that is not transformers' own.

    Transformers would load such a kernel from the hub, as code.
    """
    try:
        content = parse_json(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # whoever loads it says so
    if isinstance(content, dict) and "configuration_files" in content:  # transformers would read one of those instead
        raise TellapartError(f"{name}: its config.json names other configuration_files; expected one configuration")
    for key, value in _implementations(content):
        if value.removeprefix("paged|") not in OWN:
            raise TellapartError(
                f"{name}: its config.json names {key} '{value}', which would load code; expected one of "
                f"{', '.join(OWN)}; remove the line to use it without"
            )


def _implementations(content: Any) -> Iterator[tuple[str, str]]:
    """The implementations of attention that are named anywhere in a configuration."""
    if isinstance(content, list):
        for each in content:
            yield from _implementations(each)
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        if key.removesuffix("_internal").endswith("attn_implementation"):
            values = value.values() if isinstance(value, dict) else [value]
            yield from ((key, str(each)) for each in values if each is not None)
        else:
            yield from _implementations(value)


def similar_folders(name: str) -> str:
    """``; did you mean 'out' or 'runs/x'?``, of the model folders and runs that lie here; empty without one."""
    parents = {Path(), RUNS, Path(name).parent}
    folders = [
        str(folder)
        for parent in parents
        if parent.is_dir()
        for folder in sorted(parent.iterdir())
        if (folder / "config.json").is_file() or (folder / "run.json").is_file()
    ]
    by_name = {Path(folder).name: folder for folder in folders} | {folder: folder for folder in [*folders, "scenes"]}
    close = difflib.get_close_matches(name, by_name, n=3)
    found = list(dict.fromkeys(by_name[each] for each in close))
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""


def missing_on_hub(name: str) -> str | None:
    """Why ``name`` cannot be had from the hub, in a few words; None where it can, or lies in the hub's cache."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    try:
        cached = isinstance(try_to_load_from_cache(name, "config.json"), str)
        if constants.HF_HUB_OFFLINE:
            return None if cached else "it is not in the hub's cache (HF_HUB_OFFLINE is set, so the hub is not asked)"
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=SECONDS)
    except HFValidationError:
        return "it cannot be the name of a model on the hub"
    except RepositoryNotFoundError:
        return "the hub has no public model of that name (is it misspelt, or private? then: hf auth login)"
    except EntryNotFoundError:
        return "on the hub it has no config.json"
    except (HfHubHTTPError, OSError) as error:
        return None if cached else f"the hub did not answer ({_first_line(error)}); a folder needs no network"
    except Exception as error:  # what the HTTP library raises has no name of Python's own
        return None if cached else f"the hub cannot be reached ({_first_line(error)}); a folder needs no network"
    return None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:120].rstrip(".")


_FOR_PHOTOS = {"captioner": "Salesforce/blip-image-captioning-base", "scorer": "openai/clip-vit-base-patch32"}
BUILTIN = Path(__file__).parents[1] / "scenes" / "weights"


def model_folder(name: str, kind: str) -> str:
    """The folder (or hub name) behind ``name``; ``kind`` is 'captioner' or 'scorer'.

    ``scenes`` is the model that ships with the package; a run folder stands for the model it made; the name of a part
    that comes in a Python package (`models.packages`), for that.
    """
    if name == "scenes":
        return str(BUILTIN / kind)
    if name in PARTS:
        return str(packaged_folder(name))
    folder = Path(name).expanduser()
    if name.endswith(".toml"):
        raise UsageError(f"{name} is a recipe, not a {kind}; type: tellapart train {name}, then give its run's folder")
    if not name or folder.is_file():
        raise UsageError(f"'{name}' is no {kind}; expected a folder, a run, a hub name, or 'scenes'")
    if (folder / "run.json").is_file():
        if not (folder / "model" / "config.json").is_file():
            raise UsageError(
                f"{name} is a run without a finished model; type: "
                f"tellapart train {folder}/recipe.toml --out {folder} --resume"
            )
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


def saved_options(where: str, from_hub: bool = False) -> dict[str, Any]:
    """Returns the options that a captioner was saved with; ``from_hub``: also of a hub name, by download.

    Raises `TellapartError` where their file holds something else.
    """
    file: Path | None = Path(where) / OPTIONS_FILE
    if from_hub and not Path(where).is_dir():
        from transformers.utils.hub import cached_file

        try:
            found = cached_file(where, OPTIONS_FILE, _raise_exceptions_for_missing_entries=False)
        except OSError:
            found = None  # what is needed was there without the network; this may not be
        file = Path(found) if found else None
    if file is None or not file.is_file():
        return {}
    try:
        saved = parse_json(file.read_text(encoding="utf-8"))
    except ValueError:
        saved = None
    if not isinstance(saved, dict):
        raise TellapartError(f"{file} is damaged: expected a JSON object; copy the folder again, or remove the file")
    return saved


def levels_in(saved: Mapping[str, Any], name: str) -> Levels:
    """Returns the amounts of detail that a captioner was trained for, of the options that it was saved with.

    Raises `TellapartError` where they are not pairs of a number and a prompt.
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
    """Returns the prompt of the level nearest to ``detail``; of two that are as near, of the one with less.

    Raises `UsageError` for a number outside 0 to 1, and for a captioner that was trained for no levels.
    """
    if not 0 <= detail <= 1:
        raise UsageError(f"{name}: detail is {detail:g}; expected a number from 0 (least) to 1 (most)")
    if not levels:
        raise UsageError(
            f"{name} was trained for no amounts of detail; expected a captioner whose recipe has objective.detail; "
            "leave --detail out, or train one (docs/concepts/truth.md)"
        )
    return min(levels, key=lambda level: abs(level[0] - detail))[1]


def decoding_in(saved: Mapping[str, Any]) -> Decoding | None:
    """Returns the generation settings among the options that a captioner was saved with."""
    from tellapart.models.decoding import Decoding

    return Decoding.model_validate(saved["decoding"]) if "decoding" in saved else None


def default_decoding(name: str) -> Decoding:
    """Returns the generation settings that a captioner was saved with, without loading it; else `DEFAULT`.

    Of a hub name the file of options is downloaded.
    """
    from tellapart.models.decoding import DEFAULT

    try:
        place = model_folder(name.partition("?")[0], "captioner")
        named = place.count("/") == 1 and not Path(place).is_dir()
        saved = saved_options(place, from_hub=named and missing_on_hub(place) is None)
        return DEFAULT if not isinstance(saved, dict) else decoding_in(saved) or DEFAULT
    except (OSError, ValueError, UsageError):
        return DEFAULT  # no folder of ours; whoever loads it says what is wrong


def check_shards(folder: Path) -> None:
    """Raises `TellapartError` where an index of weights names a file outside its folder."""
    for index in folder.glob("*.index.json"):
        try:
            files = set(parse_json(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue  # whoever loads it says so
        for name in files:
            if not isinstance(name, str) or Path(name).name != name:
                raise TellapartError(
                    f"{index}: names the weights '{name}', outside its folder; expected the name of a file beside it"
                )


def checked_model_folder(name: str, kind: str) -> str:
    """As `model_folder`, for a model that is loaded now: a folder's checksums are compared, and the hub is asked once
    whether it has the name, so that one that is nowhere costs no retries."""
    where = model_folder(name, kind)
    check_name(where, kind)
    check_shards(Path(where))
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

        try:
            config = try_to_load_from_cache(name, "config.json")
        except ValueError:
            return None  # no name that the hub would give
        if not isinstance(config, str):
            return None
        folder = Path(config).parent
    suffixes = (".json", ".safetensors", ".txt", ".model", ".jinja")
    files = sorted(file for file in folder.iterdir() if file.suffix in suffixes and file.is_file())
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


NO_SETTINGS = ("transformers_version", "architectures", "dtype", "torch_dtype")  # of a configuration: nothing follows


def settings_of(model: Any) -> str:
    """Returns what the configuration of a model says of its computation, as JSON; "" where it has none."""

    def kept(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: kept(own) for key, own in value.items() if key not in NO_SETTINGS and not str(key).startswith("_")}

    config: Any = getattr(model, "config", None)
    return json.dumps(kept(config.to_dict()), sort_keys=True, default=str) if hasattr(config, "to_dict") else ""


def weights_fingerprint(model: Any, processor: Any, view: str = "") -> str:
    """Hashes a model's weights (names, shapes, bytes), its picture preprocessing, and ``view``."""
    import torch

    digest = hashlib.blake2b(view.encode(), digest_size=12)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    preprocessing = {} if processor is None else processor.to_dict()
    digest.update(json.dumps(preprocessing, sort_keys=True, default=str).encode())
    return digest.hexdigest()
