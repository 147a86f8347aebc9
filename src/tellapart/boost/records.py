"""The lines of the result, which is a data set that every reader and recipe accepts.

    {"id": "1", "image": "photos/1.jpg", "captions": ["the boosted one"], "split": "train",
     "references": ["written by people", …], "stages": {"blend": "…", "describe": "…"}, "bad": {"holistic": "why"}}

``captions`` contains the last stage's text. If the stages ran once per reference, it contains one text for each
reference, and ``others`` contains the texts for all references except the first (as
``[{"blend": "…", "holistic": "…"}, …]``). If the last stage has no good answer for an item, ``captions`` contains the
references. Pictures that have no file (those of `scenes`) are drawn into a folder next to the result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from tellapart.boost.types import Boosted
from tellapart.data.pictures import FilePicture
from tellapart.errors import UsageError
from tellapart.types import Picture
from tellapart.utils.atomic_writes import replace_file
from tellapart.utils.strict_json import parse_json
from tellapart.utils.write_errors import write_errors


class _Record(BaseModel):
    """A line's keys and their types."""

    model_config = ConfigDict(strict=True)

    id: str
    image: str
    captions: list[str]
    references: list[str] = []
    stages: dict[str, str]
    bad: dict[str, str] = {}
    others: list[dict[str, str]] = []


def record(boosted: Boosted, last: str, out: Path) -> dict[str, Any]:
    """Returns an item's line. ``last``: the stage whose text becomes the caption."""
    item = boosted.item
    value: dict[str, Any] = {"id": item.id, "image": _picture_path(item.picture, out), "captions": []}
    if item.split:
        value["split"] = item.split
    value |= {"references": list(item.references), "stages": dict(boosted.texts), "bad": dict(boosted.bad)}
    if boosted.others:
        value["others"] = [dict(texts) for texts in boosted.others]
    return with_captions_of(last, value)


def with_captions_of(stage: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a line whose captions are the stage's texts, or the references if the stage has no texts."""
    texts = [texts[stage] for texts in (value["stages"], *value.get("others", ())) if stage in texts]
    return {**value, "captions": texts or list(value.get("references", ()))}


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the lines of a result. Raises `UsageError`, with the line number, if a line is invalid."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                try:
                    value = parse_json(line)
                    _Record.model_validate(value)
                except ValueError:
                    raise UsageError(f"{path}, line {number}: not a line written by 'tellapart boost'") from None
                yield value
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'not valid UTF-8'}") from None


def relative(path: Path, out: Path) -> str:
    """Returns a path in POSIX form: relative to the result's folder if the file is inside it, otherwise absolute."""
    path, folder = path.absolute(), out.parent.absolute()
    return (path.relative_to(folder) if path.is_relative_to(folder) else path).as_posix()


def _picture_path(picture: Picture, out: Path) -> str:
    if isinstance(picture, FilePicture):
        return relative(picture.path, out)
    path = out.with_name(f"{out.stem}_pictures") / f"{picture.key()}.png"
    if not path.exists():
        with keeping_answers(path):
            path.parent.mkdir(exist_ok=True)
            image = picture.image()
            replace_file(path, lambda temporary: image.save(temporary, "PNG"), sync=False)
    return relative(path, out)


def keeping_answers(path: Path) -> contextlib.AbstractContextManager[None]:
    """Turns an `OSError` that occurs while a file of the result is written into a `TellapartError`."""
    return write_errors(path, "the answers are stored in the ledger; fix the problem and run the same command again")
