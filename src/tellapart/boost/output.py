"""Writes the result: JSON Lines that every reader and recipe accepts, in the order of the data, atomically.

    {"id": "1", "image": "photos/1.jpg", "captions": ["the boosted one"], "split": "train",
     "references": ["written by people", …], "stages": {"blend": "…", "describe": "…"}, "bad": {"holistic": "why"}}

``captions`` contains the last stage's text, or its texts for each reference. Then ``others`` has all but the first (as
``[{"blend": "…", "holistic": "…"}, …]``). If that stage has no good answer for an item, ``captions`` contains the
references. If it has none for any item, ``captions`` contains the texts of another stage (`FALLBACK`), which
``captions_of`` in ``RESULT.made.json`` names. Pictures without a file (of `scenes`) are drawn into a folder next to the
result. ``RESULT.made.json`` records how the result was made, for `merge`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from tellapart.boost.types import Boosted, Stage
from tellapart.data.pictures import FilePicture
from tellapart.errors import UsageError
from tellapart.types import Item, Picture
from tellapart.utils.atomic_writes import replace_file, temporary_beside, writable_file
from tellapart.utils.outputs import write_output
from tellapart.utils.strict_json import parse_json
from tellapart.utils.write_errors import write_errors

FALLBACK = ("holistic", "blend", "describe")  # stages to take captions from, in order: those based on references first


class Output:
    """Writes lines to a temporary file, which is renamed to ``path`` when the ``with`` block succeeds."""

    def __init__(self, path: Path, made: dict[str, Any], temporary: Path, file: TextIO) -> None:
        self.path, self.made, self._temporary, self._file = path, made, temporary, file

    @classmethod
    def open(cls, path: Path, made: dict[str, Any]) -> Output:
        """Creates the temporary file. ``made``: the result's provenance, which is saved in a file next to it."""
        with _write_errors(path):
            real = writable_file(path)
            temporary = temporary_beside(real)
            path.parent.mkdir(parents=True, exist_ok=True)
            file = temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="\n")
        return cls(path, made, temporary, file)

    def write(self, record: dict[str, Any]) -> None:
        """Writes one line."""
        with _write_errors(self.path):
            self._file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def fall_back(self, good: Mapping[str, int], last: str) -> str:
        """Sets the captions to those of `stage_of_captions`, and returns that stage."""
        if (stage := stage_of_captions(good, last)) not in (last, ""):
            self.take_captions_of(stage)
        return stage

    def take_captions_of(self, stage: str) -> None:
        """Replaces the captions of all written items with the texts of ``stage``, if it has any for them."""
        with _write_errors(self.path):
            self._file.close()
            again = self._temporary.with_name(f"{self._temporary.name}.again")
            try:
                with again.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
                    for value in read_records(self._temporary):
                        value["captions"] = texts_of(value, stage) or value["captions"]
                        file.write(json.dumps(value, ensure_ascii=False) + "\n")
                again.replace(self._temporary)
            finally:
                again.unlink(missing_ok=True)
            self._file = self._temporary.open("a", encoding="utf-8", errors="backslashreplace", newline="\n")
        self.made["captions_of"] = stage

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with _write_errors(self.path), self._file:
                if kind is None:
                    self._file.flush()
                    os.fsync(self._file.fileno())
            if kind is None:
                write_output(made_file(self.path), json.dumps(self.made, indent=1) + "\n")
                write_output(self.path, self._temporary.replace)
        finally:
            with contextlib.suppress(OSError):
                self._temporary.unlink(missing_ok=True)


def record(boosted: Boosted, last: str, out: Path) -> dict[str, Any]:
    """Returns the line of an item; ``last`` is the stage whose text becomes the caption."""
    item = boosted.item
    value: dict[str, Any] = {"id": item.id, "image": picture_path(item.picture, out), "captions": []}
    if item.split:
        value["split"] = item.split
    value |= {"references": list(item.references), "stages": dict(boosted.texts), "bad": dict(boosted.bad)}
    if boosted.others:
        value["others"] = [dict(texts) for texts in boosted.others]
    value["captions"] = texts_of(value, last) or value["references"]
    return value


def texts_of(value: Mapping[str, Any], stage: str) -> list[str]:
    """Returns a stage's texts in a line: a single one, or one per reference; empty if there are none."""
    return [texts[stage] for texts in (value["stages"], *value.get("others", ())) if stage in texts]


def picture_path(picture: Picture, out: Path) -> str:
    """Returns the path of the picture, relative if it is below the folder of the result ``out``."""
    return relative(picture.path if isinstance(picture, FilePicture) else drawn(picture, out), out)


def relative(path: Path, out: Path) -> str:
    """Returns a POSIX path, relative if it is below the result's folder, otherwise absolute."""
    path, folder = path.absolute(), out.parent.absolute()
    return (path.relative_to(folder) if path.is_relative_to(folder) else path).as_posix()


def drawn(picture: Picture, out: Path) -> Path:
    """Writes a picture without a file to ``RESULT_pictures`` as a PNG named after its content; returns the path."""
    folder = out.with_name(f"{out.stem}_pictures")
    path = folder / f"{picture.key()}.png"
    if not path.exists():
        with _write_errors(path):
            folder.mkdir(exist_ok=True)
            image = picture.image()
            replace_file(path, lambda temporary: image.save(temporary, "PNG"), sync=False)
    return path


def made_by(
    spec: str, items: Sequence[Item], stages: Sequence[Stage], shard: tuple[int, int], per_reference: bool = False
) -> dict[str, Any]:
    """Returns how a result is made. Parts of one job, on any machine, differ only in ``data`` and ``shard``."""
    ids = hashlib.blake2b(digest_size=16)
    for item in items:
        ids.update(item.id.encode("utf-8", "backslashreplace") + b"\0")
    return {
        "data": spec,
        "items": len(items),
        "ids": ids.hexdigest(),
        "stages": [
            {"name": stage.name, "model": stage.backend.name, "prompt": _digest(stage.prompt)} for stage in stages
        ],
        "shard": list(shard),
        **({"per_reference": True} if per_reference else {}),
    }


def made_file(path: Path) -> Path:
    """Returns the path of the file that records how a result was made."""
    return path.with_name(path.name + ".made.json")


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the lines of a result. Raises `UsageError` with the number of an invalid line."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                try:
                    value = parse_json(line)
                    whole = is_record(value)
                except (ValueError, KeyError, TypeError, AttributeError):
                    whole = False
                if not whole:
                    raise UsageError(f"{path}, line {number}: not a line written by 'tellapart boost'")
                yield value
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'not valid UTF-8'}") from None


def stage_of_captions(good: Mapping[str, int], last: str) -> str:
    """Returns the stage whose texts become the captions: ``last`` or, if it has none, the first in `FALLBACK` that has
    texts.

    Returns "" if no stage has texts. ``good``: number of texts by stage.
    """
    return next((name for name in (last, *FALLBACK) if good.get(name)), "")


def is_record(value: Any) -> bool:
    """Returns whether a line has the keys and types of `record`. Can raise errors such as `KeyError`."""
    lists = [value["captions"], value.get("references", [])]
    tables = [value["stages"], value.get("bad") or {}, *value.get("others", ())]
    texts = [value["id"], value["image"], *(text for table in tables for text in table.values())]
    texts += [text for texts in lists for text in texts]
    return all(isinstance(each, list) for each in lists) and all(isinstance(text, str) for text in texts)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


def _write_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    return write_errors(path, "the answers are stored in the ledger; fix the problem and run the same command again")
