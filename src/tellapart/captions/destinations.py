"""Names and formats of destinations for captions."""

from __future__ import annotations

from pathlib import Path

CAPTION_FORMATS = ("jsonl", "csv", "txt")
LOG = "log"  # pseudo-format: captions are written to the log, to be turned into texts later
PRINTED = Path("-")  # pseudo-file: standard output


def format_of(out: Path | None, format: str | None) -> str:
    return format or (out.suffix.lower().lstrip(".") if out else "")
