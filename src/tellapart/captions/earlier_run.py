"""Compares a run with the earlier run that started the captions at the same destination."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tellapart.captions.formats import LOG, PRINTED, caption_lines, format_of
from tellapart.captions.picture_matching import match_pictures
from tellapart.captions.provenance import Provenance, log_of
from tellapart.captions.replacement import KEEP_ALL
from tellapart.captions.texts_beside import TextFiles
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.differing_keys import differing

# Settings that are recorded but not compared; the models' weights and the pictures' bytes are compared instead.
SOURCE_KEYS = {"captioner", "captioner_files", "typed_options", "scorer", "scorer_files", "data", "device"}
OF_MODELS = {"captioner_weights", "scorer_weights", "frames", "captioner_options", "captioner_settings"}
PRECISION = "precision"


def is_complete(items: Sequence[Item], out: Path | None, format: str | None, request: dict[str, Any]) -> bool:
    """Returns whether all items have a caption from a run with this ``request`` and the same model files."""
    chosen = format_of(out, format)
    if chosen == "txt" and out is None:
        return len(TextFiles.beside(items, KEEP_ALL, lambda line: None).done) == len(items)
    if out is None or out == PRINTED or chosen not in ("jsonl", "csv", LOG) or request["captioner_files"] is None:
        return False
    known = Provenance.open(out if chosen != LOG else log_of(out))
    if known.settings is None or same_models(known.settings) != same_models(request):
        return False
    try:
        if chosen == LOG:
            present = {key for key, row in known.rows.items() if row.captions}
        else:
            text = out.read_bytes().decode("utf-8-sig", "surrogateescape")
            present = {line.id for line in caption_lines(text[: text.rfind("\n") + 1], chosen, out)}
        return len(match_pictures(items, known.rows, present, out)[0]) == len(items)
    except (OSError, UsageError):
        return False


def recorded_precision(out: Path | None, format: str | None = None) -> str | None:
    """Returns the precision of the run that created this file, or None if it is unknown."""
    if out is None or out == PRINTED:
        return None
    settings = Provenance.open(log_of(out) if format == LOG else out).settings or {}
    return str(settings[PRECISION]) if PRECISION in settings and (format == LOG or out.is_file()) else None


def same_models(request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that two runs must share to write the same captions. Does not load the models.

    Models on disk are compared by their files, and other models by name. Data is compared by its pictures.
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
        for each in (known.settings, json.loads(json.dumps(settings)))
    )
    if before != now:
        other = ", ".join(differing(before, now))
        raise UsageError(
            f"{path} was started with a different {other or 'setting'}; pass --overwrite to "
            "caption again (hand-written and edited texts are kept), or choose another file"
        )
