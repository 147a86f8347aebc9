"""References by the many names that published judgements have for a picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from tellapart.data.caption_files import preview_ids
from tellapart.errors import UsageError
from tellapart.evaluation.caption_inputs import read_references

_COCO_NAME = re.compile(r"(?:COCO_\w+_)?0*(\d+)")


class PictureReferences:
    """References of pictures, found by id, file name, stem, or COCO's number; and captions by Flickr8k's ``name#k``."""

    def __init__(self, texts: dict[str, list[str]], files: dict[str, str]) -> None:
        self._texts = {name: own for id_, own in texts.items() for name in _names(id_)}
        self._texts |= {name: texts[id_] for id_, file in files.items() for name in _names(file)}

    def of(self, picture: str) -> tuple[str, ...]:
        """All references of a picture, () where there are none."""
        return tuple(next((self._texts[name] for name in _names(picture) if name in self._texts), ()))

    def caption(self, caption_id: str) -> str | None:
        """The text of ``name.jpg#k``, the k-th reference of a picture."""
        picture, _, place = caption_id.rpartition("#")
        own = self.of(picture)
        return own[int(place)] if place.isdigit() and int(place) < len(own) else None


def open_references(paths: Sequence[Path], judged: Path, expected: Sequence[str], why: str) -> PictureReferences:
    """The references of ``--references``, else of the first of the ``expected`` files beside the judgements.

    Raises `UsageError` where there is neither; ``why`` says what they are for.
    """
    found = list(paths) or [judged.parent / name for name in expected if (judged.parent / name).is_file()][:1]
    if not found:
        names = " or ".join(expected)
        raise UsageError(f"{judged}: {why}; add --references FILE ({names}), or put it beside the judgements")
    read = read_references(found)
    assert read is not None
    return PictureReferences(read.texts, read.files)


def require_references(missing: Sequence[str], total: int, judged: Path) -> None:
    """Raise `UsageError` where a picture of the judgements has no reference."""
    if missing:
        raise UsageError(
            f"{judged}: {len(missing):,} of {total:,} judged captions have no reference or no text "
            f"({preview_ids(dict.fromkeys(missing))}); give the references of those pictures"
        )


def _names(name: str) -> list[str]:
    """What a picture may be called, the most exact first."""
    file = PurePosixPath(name.replace("\\", "/")).name
    stem = re.sub(r"\.(jpe?g|png|webp|gif|bmp)$", "", file, flags=re.IGNORECASE)
    number = _COCO_NAME.fullmatch(stem)
    return list(dict.fromkeys([name, file, stem, *([f"#{number[1]}"] if number else [])]))
