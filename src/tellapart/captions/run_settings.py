"""Compares the settings of a run with those of the run that began its captions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tellapart.captions.provenance import Provenance
from tellapart.errors import UsageError
from tellapart.utils.listed_names import differing

# Settings that are recorded but not compared; the models' weights and the pictures' bytes are compared instead.
SOURCE_KEYS = {"captioner", "captioner_files", "typed_options", "scorer", "scorer_files", "data", "device"}
OF_MODELS = {"captioner_weights", "scorer_weights", "frames", "captioner_options", "captioner_settings"}


def same_models(request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings in which two runs must agree to write the same captions; loads no model.

    Models are compared by their files if these are on disk, otherwise by name; data is compared by its pictures.
    """
    found = {key: value for key, value in request.items() if key not in OF_MODELS | {"data", "device"}}
    for name in ("captioner", "scorer"):
        if found.get(f"{name}_files") is not None:
            found.pop(name, None)
    return found


def refuse_other_settings(path: Path, known: Provenance, settings: Mapping[str, Any]) -> None:
    if known.settings is None:
        raise UsageError(
            f"{path} already exists and was not written by this command; pass --overwrite "
            "--replace-edited to start it over (a backup is kept), or choose another file"
        )
    ignored = SOURCE_KEYS if "captioner_weights" in settings else SOURCE_KEYS - {"captioner", "scorer"}
    before, now = (
        {key: value for key, value in each.items() if key not in ignored and value is not None}
        for each in (known.settings, _plain(settings))
    )
    if before != now:
        other = ", ".join(differing(before, now))
        raise UsageError(
            f"{path} was started with a different {other or 'setting'}; pass --overwrite to "
            "caption again (hand-written and edited texts are kept), or choose another file"
        )


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings in the form in which they are read back from the log."""
    value: dict[str, Any] = json.loads(json.dumps(settings))
    return value
