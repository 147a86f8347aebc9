"""Finds references for judged pictures in a separate file, and handles judged captions that are also references."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from tellapart.data.caption_matching import KnownIds, match_ids
from tellapart.errors import UsageError
from tellapart.evaluation.human_judgements.judgements import RatedCaption
from tellapart.evaluation.matching import read_references
from tellapart.utils.listed_names import preview_ids

# How captions that are also references are treated, for signatures.
DROPPED = "captions-that-are-references:left-out"
TAKEN_OUT = "captions-that-are-references:out-of-their-references"


def references_of(
    pictures: Collection[str], paths: Sequence[Path], judged: Path, expected: Sequence[str], why: str
) -> dict[str, tuple[str, ...]]:
    """Returns each picture's references, from ``--references`` if given, otherwise from the first of the ``expected``
    files that exists next to the judgements. Pictures are matched by id, file name, stem or number.

    Raises `UsageError` if there is no such file, or if a picture has no reference. ``why`` says in the message why
    references are needed.
    """
    found = list(paths) or [judged.parent / name for name in expected if (judged.parent / name).is_file()][:1]
    if not found:
        names = " or ".join(expected)
        raise UsageError(f"{judged}: {why}; add --references FILE ({names}), or put that file next to the judgements")
    read = read_references(found)
    assert read is not None
    ids, _ = match_ids(pictures, KnownIds(read.name, list(read.texts), read.files, read.numbered), str(judged))
    texts = {picture: tuple(read.texts[ids[picture]]) if picture in ids else () for picture in pictures}
    require_texts(judged, [picture for picture, own in texts.items() if not own], len(texts), "pictures")
    return texts


def require_texts(judged: Path, missing: Sequence[str], count: int, what: str) -> None:
    """Raises `UsageError` if any of the judged captions or pictures has no text.

    missing: an id for each of the ``count`` captions or pictures that has none; captions of one picture share its id.
    """
    if missing:
        raise UsageError(
            f"{judged}: {len(missing):,} of {count:,} judged {what} have no reference or no text "
            f"({preview_ids(dict.fromkeys(missing))}); pass the references of these pictures"
        )


def without_reference_captions(rows: Sequence[RatedCaption]) -> tuple[RatedCaption, ...]:
    """Drops captions that are identical to one of their picture's references (Flickr8k-Expert and -CF)."""
    return tuple(row for row in rows if _same(row.caption) not in map(_same, row.references))


def without_own_reference(rows: Sequence[RatedCaption]) -> tuple[RatedCaption, ...]:
    """Removes each caption from its own references (Composite, THumB, FOIL).

    Drops captions that have no other reference.
    """
    others = ([text for text in row.references if _same(text) != _same(row.caption)] for row in rows)
    return tuple(replace(row, references=tuple(own)) for row, own in zip(rows, others, strict=True) if own)


def _same(text: str) -> str:
    return " ".join(text.split()).rstrip(" .").lower()
