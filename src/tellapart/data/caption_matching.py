"""Matches the ids of captions to known ids by path, file name, stem or number, or otherwise by position."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from tellapart.errors import UsageError
from tellapart.types import Item

_SUFFIX = re.compile(r"\.(jpe?g|png|webp|gif|bmp|tiff?|heic|mp4|avi|webm|mov|mkv|npy|npz|txt)$", re.IGNORECASE)
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
class CaptionFile:
    """Texts by id, in file order.

    ``files`` and ``splits`` map an id to its picture file and its split, if the caption file contains them.
    ``numbered``: whether the ids are positions in the file, counting from "1".
    """

    name: str
    texts: dict[str, list[str]]
    files: dict[str, str] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)
    numbered: bool = False


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
    if captions.numbered or known.numbered:
        return _match_by_position(captions, known, name)
    ids = set(known.ids)
    same = sum(key in ids for key in captions.texts)
    if same == len(captions.texts):
        return MatchedCaptions(captions.texts)
    best, how, most = {key: key for key in captions.texts if key in ids}, "", same
    whole = min(len(captions.texts), len(ids))
    for way, compare in MATCH_LEVELS:
        for caption_names in _name_maps(captions.files):
            for known_names in _name_maps(known.files):
                found = _pairs(captions, known, caption_names, known_names, compare) if most < whole else {}
                if len(found) > most:
                    best, how, most = found, way, len(found)
    if not how:
        return MatchedCaptions(captions.texts)
    texts: dict[str, list[str]] = {}
    for key, caption_texts in captions.texts.items():
        target = best.get(key, f"{key} (unknown picture)" if key in ids else key)
        texts.setdefault(target, []).extend(caption_texts)
    shown = next((pair for pair in best.items() if pair[0] != pair[1]), None) or next(iter(best.items()))
    example = f"'{captions.files.get(shown[0], shown[0])}' is '{shown[1]}'"
    return MatchedCaptions(
        texts,
        f"{name}: matched {most} of {len(captions.texts)} captions with {known.name} by {how}, for example {example}",
    )


def match_ids(ids: Iterable[str], known: KnownIds, name: str) -> tuple[dict[str, str], str | None]:
    """Finds the known id for each given id like `match_captions`: ``391895`` matches ``COCO_val2014_….jpg``.

    Returns a mapping from given to known ids, without unmatched ids, and how ids were matched (None: identical).
    """
    inside = set(known.ids)
    given = CaptionFile(name, {id_: [id_] for id_ in ids})
    matched = match_captions(given, known, name)
    return {own: id_ for id_, owns in matched.texts.items() if id_ in inside for own in owns}, matched.how


def _name_maps(files: Mapping[str, str]) -> list[Mapping[str, str]]:
    """Returns the names by which pictures are compared: their ids and, if known, their file names."""
    return [{}, files] if files else [{}]


def _pairs(
    captions: CaptionFile,
    known: KnownIds,
    caption_names: Mapping[str, str],
    known_names: Mapping[str, str],
    compare: Callable[[str], str],
) -> dict[str, str]:
    """Maps the captions' ids to known ids by names that are unique on both sides. Records with the same file
    describe one picture.
    """
    known_key: dict[str, str] = {}
    twice: set[str] = set()
    for id_ in known.ids:
        key = compare(known_names.get(id_, id_))
        if known_key.setdefault(key, id_) != id_:
            twice.add(key)
    caption_name: dict[str, str] = {}
    for id_ in captions.texts:
        name = caption_names.get(id_, id_)
        key = compare(name)
        if caption_name.setdefault(key, name) != name:
            twice.add(key)
    pairs = ((id_, compare(caption_names.get(id_, id_))) for id_ in captions.texts)
    return {id_: known_key[key] for id_, key in pairs if key in known_key and key not in twice}


def _match_by_position(captions: CaptionFile, known: KnownIds, name: str) -> MatchedCaptions:
    (own, count), (other, expected) = sides = (name, len(captions.texts)), (known.name, len(known.ids))
    if captions.numbered != known.numbered:
        (bare, lines), (whole, _) = sides if captions.numbered else sides[::-1]
        example = next(iter(known.ids if captions.numbered else captions.texts), "391895")
        raise UsageError(
            f"{bare}: the {lines:,} entries have no ids, but those of {whole} do; they are not "
            "paired by position, because the order may differ. Add ids to the entries, such as "
            f'{{"id": "{example}", "caption": "a dog"}}'
        )
    if count != expected:
        raise UsageError(
            f"{own} has {count:,} entries, but {other} has {expected:,}, and neither has ids; "
            "expected one entry per picture in the same order, or files with ids"
        )
    return MatchedCaptions(captions.texts, f"{own}: paired with {other} by position, because neither has ids")
