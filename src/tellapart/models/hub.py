"""Whether a model's name is on the hub: asked once, before anything is downloaded."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tellapart.errors import TellapartError, UsageError

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


def check_attention(name: str, config: Path) -> None:
    """Raises `TellapartError` where a model's configuration names an implementation that is not transformers' own.

    Transformers would load such a kernel from the hub, as code.
    """
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # whoever loads it says so
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
