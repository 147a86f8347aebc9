"""Aligns captions with the known ids, and reports missing, additional and empty captions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tellapart.errors import UsageError
from tellapart.utils.listed_names import preview_ids


def align_lists(
    captions: Mapping[str, str | Sequence[str]],
    known: Iterable[str],
    allow_missing: bool = False,
    name: str = "captions",
    other: str = "the data",
    min_overlap: float = 0.0,
    needed: Collection[str] = (),
) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the captions of each known id, in order, and notes about what did not match.

    Ids on only one side raise `UsageError` or, with ``allow_missing``, are left out and listed in a note. If ids have
    different numbers of captions, every id keeps only the smallest number, which a note states. Empty captions are
    kept, because the captioner wrote them, and are listed in a note. Even with ``allow_missing``, raises `UsageError`
    if one side shares less than the fraction ``min_overlap`` of its ids with the other side. ``needed``: the known ids
    to consider (default: all).
    """
    lists = {key: [text] if isinstance(text, str) else list(text) for key, text in captions.items()}
    ids = dict.fromkeys(known)
    both = [key for key in ids if lists.get(key)]
    if not both:
        raise UsageError(
            f"{name}: none of the ids occurs in {other} (captions: {preview_ids(lists)}; {other}: "
            f"{preview_ids(ids)}); provide files with the same ids"
        )
    expected = len(ids.keys() & set(needed)) if needed else len(ids)
    check_overlap(len(both), max(len(lists), expected), name, other, min_overlap)
    each = min(len(lists[key]) for key in both)
    found = {
        f"captions do not belong to any picture in {other}": [key for key in lists if key not in ids],
        f"pictures in {other} have no caption": [key for key in ids if not lists.get(key)],
        f"ids have {'several' if each == 1 else f'more than {each}'} captions": [
            key for key, texts in lists.items() if len(texts) > each
        ],
    }
    notes = report_problems(found, name, allow_missing)
    aligned = {key: lists[key][:each] for key in both}
    if empty := [key for key, texts in aligned.items() if not all(map(str.strip, texts))]:
        notes.append(f"{name}: {len(empty):,} of {len(both):,} captions are empty and score 0 ({preview_ids(empty)})")
    if each > 1:
        notes.append(f"{name}: {each} captions per picture; single-caption metrics report the mean over them")
    return aligned, notes


def check_overlap(both: int, largest: int, name: str, other: str, min_overlap: float) -> None:
    """Raises `UsageError` if two sides share less than the fraction ``min_overlap`` of the larger side's ids."""
    if both < min_overlap * largest:
        raise UsageError(
            f"{name} and {other} have only {both:,} of {largest:,} ids in common; are they about "
            f"the same pictures? To score only these {both:,}, pass --allow-missing --set "
            "min_overlap=0"
        )


def report_problems(found: Mapping[str, Sequence[str]], name: str, allowed: bool) -> list[str]:
    """Returns one line per kind of problem, or raises `UsageError` with these lines unless ``allowed`` is set."""
    lines = [f"{name}: {len(keys)} {what} ({preview_ids(keys)})" for what, keys in found.items() if keys]
    if lines and not allowed:
        raise UsageError("; ".join(lines) + "; fix the files, or pass --allow-missing to score the rest")
    return lines
