"""What an earlier run left at a destination for captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tellapart.captions.destinations import LOG, PRINTED, format_of
from tellapart.captions.lines import caption_lines
from tellapart.captions.logged_captions import log_of
from tellapart.captions.picture_matching import match_pictures
from tellapart.captions.provenance import Provenance
from tellapart.captions.replacement import KEEP_ALL
from tellapart.captions.run_settings import same_models
from tellapart.captions.texts_beside import TextFiles
from tellapart.errors import UsageError
from tellapart.types import Item

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
    """Returns the precision of the run that created this file; None if unknown."""
    if out is None or out == PRINTED:
        return None
    settings = Provenance.open(log_of(out) if format == LOG else out).settings or {}
    return str(settings[PRECISION]) if PRECISION in settings and (format == LOG or out.is_file()) else None
