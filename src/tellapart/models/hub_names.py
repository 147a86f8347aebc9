"""Checks a model's name before the model is loaded: asks the hub once whether it has such a model."""

from __future__ import annotations

import difflib
from pathlib import Path

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HFValidationError, RepositoryNotFoundError
from transformers.utils.hub import cached_file

from tellapart.errors import TellapartError, UsageError, first_line
from tellapart.models.config_checks import check_config
from tellapart.models.names import RUNS

SECONDS = 10.0  # timeout of the hub request
SHIPPED = "captioner", "scorer"  # kinds of models that are included in the package


def check_name(name: str, kind: str) -> None:
    """Raises an error if ``name`` is neither a folder nor a model on the hub. ``kind``: the expected kind of model.

    Also raises an error if the model's configuration would make transformers load code (`check_config`). Queries the
    hub once, without retries; if the hub is unreachable, accepts cached models. The error is a one-line `UsageError` if
    the name looks like a path, otherwise a `TellapartError`. Its message suggests similar folder names first.
    """
    if Path(name).expanduser().is_dir():
        check_config(name, Path(name).expanduser() / "config.json")
        return
    near = similar_folders(name)
    if "/" in name and Path(name.split("/")[0]).is_dir():
        expected = "a folder, a run, a hub name, or 'scenes'" if kind in SHIPPED else "a folder or a hub name"
        raise UsageError(f"model folder {name} does not exist{near}; expected {expected}")
    if (why := missing_on_hub(name)) is not None:
        raise TellapartError(f"cannot load {name}: there is no such folder{near}, and {why}; expected a {kind}")

    config = cached_file(name, "config.json", _raise_exceptions_for_connection_errors=False)
    if config is not None:
        check_config(name, Path(config))


def similar_folders(name: str) -> str:
    """Returns `` (did you mean 'out' or 'runs/x'?)`` if there are similarly named model folders or runs, or else ""."""
    files = ("*/config.json", "*/run.json")
    folders = sorted({str(f.parent) for root in (Path(), RUNS, Path(name).parent) for p in files for f in root.glob(p)})
    by_name = {Path(folder).name: folder for folder in folders} | {folder: folder for folder in [*folders, "scenes"]}
    close = difflib.get_close_matches(name, by_name, n=3)
    similar = list(dict.fromkeys(by_name[each] for each in close))
    return f" (did you mean {' or '.join(map(repr, similar))}?)" if similar else ""


def missing_on_hub(name: str) -> str | None:
    """Returns a short reason why the hub cannot provide ``name``, or None if it can or if the model is cached."""

    try:
        cached = isinstance(try_to_load_from_cache(name, "config.json"), str)
        if constants.HF_HUB_OFFLINE:
            return None if cached else "it is not in the hub's cache, and HF_HUB_OFFLINE disables downloads"
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=SECONDS)
    except HFValidationError:
        return "it is not a valid name for a model on the hub"
    except RepositoryNotFoundError:
        return "the hub has no public model with that name (if the model is private, run: hf auth login)"
    except EntryNotFoundError:
        return "it has no config.json on the hub"
    except Exception as error:  # the HTTP library's errors have no common base class
        cause = first_line(error)[:120].rstrip(".")
        return None if cached else f"the hub did not answer ({cause}); a local folder works offline"
    return None
