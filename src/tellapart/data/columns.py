"""Interprets the columns of a table: picture, captions, id and split.

`Columns` are recognized by common names, or named by the user: ``image=COLUMN``, ``captions=COLUMN`` (or several:
``captions=title,alt``), ``id=COLUMN``. CSV, Parquet and the datasets library accept the same keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tellapart.data.caption_values import clean_captions
from tellapart.data.options import Options
from tellapart.data.reader import IMAGES
from tellapart.data.record_keys import DATA_KEYS, VIZWIZ_FLAGS, find_key, picture_key, text_keys
from tellapart.data.records import id_text
from tellapart.data.row_errors import RowError
from tellapart.data.splits import normalize_split
from tellapart.errors import UsageError
from tellapart.utils.comma_lists import comma_list

COLUMN_KEYS = {
    **IMAGES,
    "image": "name of the picture column",
    "captions": "names of the caption columns, such as `title,alt`",
    "id": "name of the id column",
}
IDS = ("id", "image_id", "key", "__key__")
SPLITS = ("split",)


@dataclass(frozen=True)
class Columns:
    """The column names; ``captions`` may be empty, ``id`` and ``split`` may be ""."""

    image: str
    captions: tuple[str, ...]
    id: str
    split: str
    flags: tuple[str, ...] = ()  # VizWiz's

    @classmethod
    def choose(cls, names: Collection[str], options: Options, *, image: str = "") -> Columns:
        """Selects the columns in the options, or columns with common names. ``image``: a column that contains pictures.

        Raises a `UsageError` that lists the available columns.
        """
        captions = tuple(comma_list(options.text("captions")))
        wanted = [name for name in (options.text("image"), options.text("id"), *captions) if name]
        there = ", ".join(names) or "none"
        for name in wanted:
            if name not in names:
                raise UsageError(f"{options.spec}: no column '{name}'; available columns: {there}")
        found = options.text("image") or image or picture_key(names)
        if not found:
            raise UsageError(
                f"{options.spec}: no picture column was found; available columns: {there}; add image=COLUMN"
            )
        rest = [name for name in names if name != found]
        return cls(
            image=found,
            captions=captions or tuple(text_keys(DATA_KEYS, rest)),
            id=options.text("id") or find_key(IDS, rest),
            split=find_key(SPLITS, rest),
            flags=tuple(key for flag in VIZWIZ_FLAGS if (key := find_key((flag,), rest))),
        )

    def texts(self) -> list[str]:
        """Returns the names of all columns except the picture column, without duplicates."""
        return list(dict.fromkeys(filter(None, [*self.captions, self.id, self.split, *self.flags])))

    def references(self, row: Mapping[str, Any], where: str) -> tuple[str, ...]:
        """Returns a row's captions: texts, or lists of texts or ``{"raw": text}``.

        In CSV, lists are printed by JSON, Python or NumPy.
        """
        flags = {flag: row[flag] for flag in self.flags}
        return tuple(
            text for name in self.captions for text in _texts_of(row[name], f"{where}, column '{name}'", flags)
        )

    def id_of(self, row: Mapping[str, Any], otherwise: str) -> str:
        """Returns a row's id, or ``otherwise`` if no column contains it."""
        value = row[self.id] if self.id else None
        return otherwise if value is None or value == "" or value != value else id_text(value)

    def split_of(self, row: Mapping[str, Any], otherwise: str = "") -> str:
        """Returns the standard name of a row's split."""
        return normalize_split(str(row[self.split] or "")) if self.split else otherwise


def _texts_of(value: Any, where: str, flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the captions in a cell. Raises a `UsageError` whose message begins with ``where``."""
    try:
        return clean_captions(value, where, flags)
    except RowError:
        raise
    except UsageError:
        raise UsageError(
            f"{where}: expected a string or a list of strings, got {str(value)[:40]!r}; add captions=COLUMN"
        ) from None
