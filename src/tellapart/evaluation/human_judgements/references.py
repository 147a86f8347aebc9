"""Finds references for judged pictures in a separate file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from tellapart.errors import UsageError
from tellapart.evaluation.matching import read_references
from tellapart.utils.listed_names import preview_ids

_COCO_NAME = re.compile(r"(?:COCO_\w+_)?0*(\d+)")


class PictureReferences:
    """References by id, file name, stem or COCO number, and captions by Flickr8k's ``name#k``."""

    def __init__(self, texts: dict[str, list[str]], files: dict[str, str]) -> None:
        self._texts = {name: own for id_, own in texts.items() for name in _names_of(id_)}
        self._texts |= {name: texts[id_] for id_, file in files.items() for name in _names_of(file)}
        self.missing: list[str] = []

    def of(self, *names: str) -> tuple[str, ...]:
        """Returns a picture's references, given any of its names. Returns () if there are none; `require` reports the
        missing references later.
        """
        known = (self._texts[each] for name in names for each in _names_of(name) if each in self._texts)
        if not (found := tuple(next(known, ()))):
            self.missing.append(names[-1])
        return found

    def caption(self, caption_id: str) -> str | None:
        """Returns the text of ``name.jpg#k``, the k-th reference of a picture."""
        picture, _, place = caption_id.rpartition("#")
        own = self.of(picture)
        if place.isdigit() and int(place) < len(own):
            return own[int(place)]
        if own:
            self.missing.append(caption_id)
        return None

    def require(self, judged: Path, rows: int) -> None:
        """Raises `UsageError` if a judged picture has no reference. ``rows``: the number of judgements with
        references.
        """
        if self.missing:
            raise UsageError(
                f"{judged}: {len(self.missing):,} of {rows + len(self.missing):,} judged captions have no "
                f"reference or no text ({preview_ids(dict.fromkeys(self.missing))}); pass the references of these "
                "pictures"
            )


def open_references(paths: Sequence[Path], judged: Path, expected: Sequence[str], why: str) -> PictureReferences:
    """Reads ``--references`` if given, otherwise the first of the ``expected`` files that exists next to the
    judgements.

    Raises `UsageError` if no such file exists. ``why`` says in the message why references are needed.
    """
    found = list(paths) or [judged.parent / name for name in expected if (judged.parent / name).is_file()][:1]
    if not found:
        names = " or ".join(expected)
        raise UsageError(f"{judged}: {why}; add --references FILE ({names}), or put that file next to the judgements")
    read = read_references(found)
    assert read is not None
    return PictureReferences(read.texts, read.files)


def _names_of(name: str) -> list[str]:
    """Returns a picture's possible names, most specific first."""
    file = PurePosixPath(name.replace("\\", "/")).name
    stem = re.sub(r"\.(jpe?g|png|webp|gif|bmp)$", "", file, flags=re.IGNORECASE)
    number = _COCO_NAME.fullmatch(stem)
    return list(dict.fromkeys([name, file, stem, *([f"#{number[1]}"] if number else [])]))
