"""Decides which existing texts a command may replace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tellapart.captions.authors import UNKNOWN
from tellapart.captions.backups import back_up
from tellapart.captions.formats import CaptionLine, caption_lines, format_of, texts_by_id
from tellapart.captions.journal import new_change
from tellapart.captions.provenance import Provenance
from tellapart.errors import UsageError
from tellapart.utils.messages import say


@dataclass(frozen=True)
class Replace:
    """Whether a command may replace tellapart's texts (``own``), and texts that people wrote or edited (``edited``)."""

    own: bool = False
    edited: bool = False

    @property
    def by_hand(self) -> str:
        """Returns what people may have done to texts that ``edited`` applies to, for messages."""
        return "written, edited or accepted" if self.own else "written or edited"


KEEP_ALL = Replace()


def guard_edited(out: Path, replaces: Replace) -> bool:
    """Raises `UsageError` if a caption file to be replaced as a whole contains texts that a person wrote.

    If ``replaces.edited`` is set, backs them up, records the change, so that ``undo`` can restore them with their
    marks, and removes the file instead. Returns whether tellapart wrote all texts in the file.
    """
    format = format_of(out, None)
    if format not in ("jsonl", "csv") or not out.is_file():
        return False
    known = Provenance.open(out)
    lines: list[CaptionLine] = []
    try:
        lines = lines_in(out)
        edited = texts_by_id(line for line in lines if is_persons(line, known, replaces))
    except UsageError:
        edited = {"": _text_in(out)}
    if edited and not replaces.edited:
        raise UsageError(
            f"{out}: {len(edited):,} captions were {replaces.by_hand} by hand; choose another "
            "file, or pass --replace-edited to replace them (a backup is kept)"
        )
    if edited:
        backup = back_up(out, edited)
        say(f"{out}: replaced {len(edited):,} texts that were {replaces.by_hand} by hand; the backup is {backup}")
        known.record_marks(lines)
        texts = dict.fromkeys((key for key in known.rows if known.is_decorative(key)), "")
        texts |= texts_by_id(lines)
        known.record_removed(texts, new_change("caption", UNKNOWN))
        out.unlink()
    return not edited and bool(lines)


def lines_in(out: Path) -> list[CaptionLine]:
    """Returns the lines of a ``.jsonl`` or ``.csv`` file of captions. Raises `UsageError` for invalid lines."""
    return list(caption_lines(_text_in(out), format_of(out, None), out))


def _text_in(out: Path) -> str:
    return out.read_bytes().decode("utf-8-sig", "surrogateescape")


def is_persons(line: CaptionLine, known: Provenance, replaces: Replace) -> bool:
    """Returns whether a line contains a text that is only replaced with ``replaces.edited``."""
    return known.is_persons(line.id, line.text, accepted=replaces.own) or (replaces.own and bool(line.marks))
