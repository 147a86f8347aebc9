"""Opens destinations for captions: a file of lines, a text file next to each picture, the log, or standard output.

Captions that a person wrote or edited are replaced only on request, and the journal keeps them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tellapart.captions.authors import Author
from tellapart.captions.formats import (
    CAPTION_FORMATS,
    LOG,
    METADATA,
    PRINTED,
    csv_header,
    csv_line,
    format_of,
    json_line,
    name_in,
    text_lines,
)
from tellapart.captions.journal import new_change
from tellapart.captions.line_file import LineFile
from tellapart.captions.logged_captions import LogWriter
from tellapart.captions.replacement import KEEP_ALL, Replace
from tellapart.captions.texts_beside import TextFiles
from tellapart.captions.written import Written
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.write_errors import stdout_errors


class Writer(Protocol):
    """Destination for captions. ``done``: the ids that already have a caption."""

    done: set[str]

    def write(self, captions: Sequence[Written]) -> None:
        """Appends captions. Raises `TellapartError` if the disk is full."""
        ...

    def close(self) -> None:
        """Flushes to disk and closes the file."""
        ...


def open_writer(
    items: Sequence[Item],
    out: Path | None,
    format: str | None,
    settings: dict[str, Any],
    resume: bool,
    replaces: Replace = KEEP_ALL,
) -> Writer:
    """Opens a writer for ``out``. If ``format`` is None, it is inferred from the suffix of ``out``."""
    if out is not None and format == LOG:
        return LogWriter.open(out, settings, items, replaces)
    chosen = format_of(out, format)
    samples = 1 if settings["best_of"] else settings["decoding"]["samples"]
    if samples > 1 and out is not None and out.name == METADATA:
        raise UsageError(
            f"-o {out}: this format stores one caption per picture, but {samples} were requested; use -o captions.jsonl"
        )
    if out is not None and out.name == METADATA:
        for item in items:
            name_in(item, out.parent)
    if samples > 1 and chosen != "jsonl" and not (out == PRINTED and chosen in ("", "txt")):
        raise UsageError(
            f"writing {samples} captions per picture requires a .jsonl file; use -o "
            "captions.jsonl, or request a single caption"
        )
    if format is not None and format not in CAPTION_FORMATS:
        raise UsageError(f"unknown format '{format}'; expected one of {', '.join(CAPTION_FORMATS)}")
    if out == PRINTED:
        return Printed(chosen or "jsonl", settings.get("best_of") is not None)
    if chosen == "txt":
        if out is not None:
            raise UsageError(
                f"-o {out}: expected a .jsonl or .csv file; to write a .txt file beside each "
                "picture, use --format txt without -o"
            )
        texts = TextFiles.beside(items, replaces, change=new_change("caption", Author.from_settings(settings)))
        texts.lock()
        return texts
    if out is None:
        raise UsageError(
            "missing output file for the captions; use -o captions.jsonl, -o - to print them, or --format txt"
        )
    if chosen not in CAPTION_FORMATS:
        raise UsageError(f"-o {out}: cannot infer the format from this name; expected .jsonl or .csv, or pass --format")
    return LineFile.open(out, chosen, settings, items, resume, replaces)


class Printed:
    """Prints captions to standard output as they are generated: JSON lines, CSV, or only the captions (``txt``)."""

    def __init__(self, format: str, scored: bool) -> None:
        self.done: set[str] = set()
        self._format = format
        if format == "csv":
            with stdout_errors():
                sys.stdout.write(csv_header(scored))

    def write(self, captions: Sequence[Written]) -> None:
        lines: dict[str, Callable[[Written], str]] = {"jsonl": json_line, "csv": csv_line, "txt": text_lines}
        with stdout_errors():
            for one in captions:
                sys.stdout.write(lines[self._format](one))
        self.done.update(one.item.id for one in captions)

    def close(self) -> None:
        """Does nothing."""
