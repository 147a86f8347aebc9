"""Reads search queries for captioned pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tellapart.data.caption_files import read_reference_file
from tellapart.data.caption_matching import match_captions
from tellapart.errors import UsageError
from tellapart.evaluation.matching import captioned_ids
from tellapart.types import Item


def read_queries(
    path: Path | None, ids: Sequence[str], items: Sequence[Item] | None
) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the queries for captioned pictures by id, and notes on how pictures were matched and what was omitted.

    Raises `UsageError` if no query belongs to a captioned picture.
    """
    if path is None:
        return {}, []
    matched = match_captions(read_reference_file(path), captioned_ids(ids, items), str(path))
    wanted = set(ids)
    found = {
        key: kept for key, own in matched.texts.items() if key in wanted and (kept := [t for t in own if t.strip()])
    }
    if not found:
        raise UsageError(
            f"{path}: none of its queries belongs to a captioned picture; expected the same ids as in the caption files"
        )
    notes = [matched.how] if matched.how else []
    if others := len(matched.texts) - len(found):
        notes.append(
            f"{path}: the queries for {others:,} pictures are omitted because they are empty "
            "or the picture has no caption"
        )
    return found, notes


def plain_words(text: str) -> str:
    """Returns a text in lower case with single spaces, to compare texts."""
    return " ".join(text.lower().split())
