"""Matches the ids of captions to known ids by path, file name, stem or number, or otherwise by position."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from urllib.parse import unquote

from tellapart.data.caption_file import CaptionFile
from tellapart.data.file_names import MEDIA
from tellapart.errors import UsageError
from tellapart.types import Item

_SUFFIX = re.compile(rf"\.({MEDIA}|npy|npz|txt)$", re.IGNORECASE)
_NUMBER = re.compile(r"(?:COCO_[a-z]+\d{4}_)?0*(\d+)(?:\.0)?", re.IGNORECASE)


def _path(text: str) -> str:
    path = unquote(re.split(r"[?#]", text.partition("://")[2])[0]) if "://" in text[:12] else text
    path = unicodedata.normalize("NFC", path).strip()  # macOS writes é as two characters; table cells are stripped
    return path.replace("\\", "/").removeprefix("./")


def _tail(text: str) -> str:
    return "/".join(_path(text).split("/")[-2:])


def _name(text: str) -> str:
    return _path(text).rsplit("/", 1)[-1]


def _stem(text: str) -> str:
    return _SUFFIX.sub("", _name(text))


def _number(text: str) -> str:
    found = _NUMBER.fullmatch(_stem(text))
    return found[1] if found else text


# Ways to compare names, strictest first.
MATCH_LEVELS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("path", _path),
    ("folder and file name", _tail),
    ("file name", _name),
    ("file name without its suffix", _stem),
    ("the number in the file name", _number),
)


@dataclass(frozen=True)
class KnownIds:
    """The ids to match captions with, in order, and the names of their picture files, if known.

    ``numbered``: whether the ids are positions in a file, counting from "1". ``name`` is used in messages.
    """

    name: str
    ids: Sequence[str]
    files: Mapping[str, str] = field(default_factory=dict)
    numbered: bool = False

    @classmethod
    def of(cls, name: str, items: Collection[Item]) -> KnownIds:
        """Returns the ids of items and the names of their pictures."""
        return cls(name, [item.id for item in items], {item.id: item.picture.name for item in items})

    @classmethod
    def of_files(cls, name: str, items: Collection[Item]) -> KnownIds:
        """Returns the ids of items and the file of each picture that is stored as a file of its own."""
        paths = ((item.id, getattr(item.picture, "path", None)) for item in items)
        return cls(name, [item.id for item in items], {id_: str(path) for id_, path in paths if path is not None})


@dataclass(frozen=True)
class MatchedCaptions:
    """Texts by known id, or by their own id if they match none. ``how`` is None if the ids were identical."""

    texts: dict[str, list[str]]
    how: str | None = None


def match_captions(captions: CaptionFile, known: KnownIds, name: str) -> MatchedCaptions:
    """Matches captions to known ids, using the comparison that matches the most of them. Ties go to the strictest.

    Matches by position only if neither side has ids, which requires equal lengths. Raises `UsageError` if the lengths
    differ, or if only one side has ids.
    """
    pairs, how = _match(KnownIds(name, list(captions.texts), captions.files, captions.numbered), known)
    texts: dict[str, list[str]] = {}
    ids = set(known.ids)
    for key, own in captions.texts.items():
        target = pairs.get(key, f"{key} (unknown picture)" if key in ids else key)
        texts.setdefault(target, []).extend(own)
    return MatchedCaptions(texts, how)


def match_ids(ids: Iterable[str], known: KnownIds, name: str) -> tuple[dict[str, str], str | None]:
    """Finds the known id for each given id like `match_captions`: ``391895`` matches ``COCO_val2014_….jpg``.

    Returns a mapping from given to known ids, without unmatched ids, and how ids were matched (None: identical).
    """
    return _match(KnownIds(name, list(dict.fromkeys(ids))), known)


def _match(own: KnownIds, known: KnownIds) -> tuple[dict[str, str], str | None]:
    """Returns the known id of each matched id, and how ids were matched (None: identical).

    Pictures are compared by their ids and, if known, by the names of their files. Raises `UsageError` like
    `match_captions`.
    """
    if own.numbered or known.numbered:
        return _match_by_position(own, known)
    ids, how = set(known.ids), None
    best = {key: key for key in own.ids if key in ids}
    for (way, compare), own_files, known_files in product(MATCH_LEVELS, _names(own), _names(known)):
        if len(best) >= min(len(own.ids), len(ids)):  # more, if several records describe one picture
            break
        known_key = _unambiguous((compare(known_files.get(id_, id_)), id_) for id_ in known.ids)
        keys = {id_: compare(own_files.get(id_, id_)) for id_ in own.ids}
        # Records with the same file describe one picture.
        unique = _unambiguous((key, own_files.get(id_, id_)) for id_, key in keys.items())
        found = {id_: known_key[key] for id_, key in keys.items() if key in known_key and key in unique}
        if len(found) > len(best):
            best, how = found, way
    if how is None:
        return best, None
    own_id, id_ = next((pair for pair in best.items() if pair[0] != pair[1]), None) or next(iter(best.items()))
    return best, (
        f"{own.name}: matched {len(best)} of {len(own.ids)} captions with {known.name} by {how}, for example "
        f"'{own.files.get(own_id, own_id)}' is '{id_}'"
    )


def _names(pictures: KnownIds) -> list[Mapping[str, str]]:
    """Returns the names by which pictures are compared: their ids and, if known, their file names."""
    return [{}, pictures.files] if pictures.files else [{}]


def _match_by_position(own: KnownIds, known: KnownIds) -> tuple[dict[str, str], str | None]:
    count, expected = len(own.ids), len(known.ids)
    if own.numbered != known.numbered:
        bare, whole = (own, known) if own.numbered else (known, own)
        raise UsageError(
            f"{bare.name}: the {len(bare.ids):,} entries have no ids, but those of {whole.name} do; they are not "
            "paired by position, because the order may differ. Add ids to the entries, such as "
            f'{{"id": "{next(iter(whole.ids), "391895")}", "caption": "a dog"}}'
        )
    if count != expected:
        raise UsageError(
            f"{own.name} has {count:,} entries, but {known.name} has {expected:,}, and neither has ids; "
            "expected one entry per picture in the same order, or files with ids"
        )
    how = f"{own.name}: paired with {known.name} by position, because neither has ids"
    return {key: key for key in own.ids}, how


def _unambiguous(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns the pairs as a mapping, without keys that have several values."""
    found: dict[str, str] = {}
    ambiguous = {key for key, value in pairs if found.setdefault(key, value) != value}
    return {key: value for key, value in found.items() if key not in ambiguous}
