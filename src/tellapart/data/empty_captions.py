"""Recognizes captions that are empty or stand for a missing value, and removes empty references."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from tellapart.utils.listed_names import preview_ids

_MISSING_TEXTS = frozenset(("nan", "NaN", "NA", "<NA>", "N/A", "n/a", "#N/A", "null", "NULL", "None"))


def has_text(caption: str) -> bool:
    """Returns whether a caption contains a letter, digit or symbol, and therefore at least one token."""
    return any(unicodedata.category(character)[0] in "LMNS" for character in caption)


def stands_for_nothing(caption: str) -> bool:
    """Returns whether a caption is what pandas, Excel or str() write for a missing value, such as ``nan`` or ``NA``."""
    return caption.strip() in _MISSING_TEXTS


def with_text(references: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the non-empty references of each id, and a note about empty references. Data sets drop these, too."""
    kept = {key: [text for text in texts if has_text(text)] for key, texts in references.items()}
    few = {key: len(texts) - len(kept[key]) for key, texts in references.items() if 0 < len(kept[key]) < len(texts)}
    many = f"references: ignoring {sum(few.values()):,} empty references ({preview_ids(few)})"
    return kept, [many] if few else []
