"""Decides which existing texts a command may replace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tellapart.captions.backups import back_up
from tellapart.captions.formats import CaptionLine, caption_lines, format_of
from tellapart.captions.provenance import Provenance
from tellapart.errors import UsageError
from tellapart.utils.messages import say


@dataclass(frozen=True)
class Replace:
    """Whether a command may replace tellapart's texts (``own``), and texts that people wrote or edited (``edited``)."""

    own: bool = False
    edited: bool = False


KEEP_ALL = Replace()


def guard_edited(out: Path, replaces: Replace) -> bool:
    """Raises `UsageError` if a caption file to be replaced as a whole contains texts that a person wrote.

    If ``replaces.edited`` is set, backs them up and removes the file instead. Returns whether tellapart wrote all texts
    in the file.
    """
    format = format_of(out, None)
    if format not in ("jsonl", "csv") or not out.is_file():
        return False
    known = Provenance.open(out)
    text = out.read_bytes().decode("utf-8-sig", "surrogateescape")
    lines: list[CaptionLine] = []
    try:
        lines = list(caption_lines(text, format, out))
        edited = {line.id: line.text for line in lines if is_persons(line, known, replaces)}
    except UsageError:
        edited = {"": text}
    if edited and not replaces.edited:
        raise UsageError(
            f"{out}: {len(edited):,} captions were written, edited or accepted by hand; choose another "
            "file, or pass --replace-edited to replace them (a backup is kept)"
        )
    if edited:
        say(f"{out}: replaced {len(edited):,} hand-written texts; the backup is {back_up(out, edited)}")
        out.unlink()
    return not edited and bool(lines)


def is_persons(line: CaptionLine, known: Provenance, replaces: Replace) -> bool:
    """Returns whether a line contains a text that is only replaced with ``replaces.edited``."""
    return known.is_persons(line.id, line.text, accepted=replaces.own) or (replaces.own and line.marked)
