"""The result: JSON lines that every reader and recipe accepts, in the order of the data, written atomically.

    {"id": "1", "image": "photos/1.jpg", "captions": ["the boosted one"], "split": "train",
     "references": ["people's own", …], "stages": {"blend": "…", "describe": "…"}, "bad": {"holistic": "why"}}

``captions`` is the last stage's text, or its texts for each reference, of which all but the first also stand in
``others`` (as ``[{"blend": "…", "holistic": "…"}, …]``); where that stage has no good answer it is people's own. Where
it has none about any item, ``captions`` are another stage's (`FALLBACK`), and ``captions_of`` in ``RESULT.made.json``
names it. A picture that is no file (of `scenes`) is drawn into a folder beside the result. ``RESULT.made.json`` says
what made it, for `merge`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from tellapart.boost.types import Boosted, Stage
from tellapart.data.pictures import FilePicture
from tellapart.errors import UsageError
from tellapart.types import Item, Picture
from tellapart.utils.files import replace_file, temporary_beside, writable_file, write_errors, write_output
from tellapart.utils.messages import parse_json

FALLBACK = ("holistic", "blend", "describe")  # whose texts become the captions: what people vouch for goes first


class Output:
    """Lines into a temporary file beside ``path``, which takes its name when the ``with`` block ends well."""

    def __init__(self, path: Path, made: dict[str, Any], temporary: Path, file: TextIO) -> None:
        self.path, self.made, self._temporary, self._file = path, made, temporary, file

    @classmethod
    def open(cls, path: Path, made: dict[str, Any]) -> Output:
        """Begin the temporary file. ``made``: what goes into the file's first line or beside it."""
        with _write_errors(path):
            real = writable_file(path)
            temporary = temporary_beside(real)
            path.parent.mkdir(parents=True, exist_ok=True)
            file = temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="\n")
        return cls(path, made, temporary, file)

    def write(self, record: dict[str, Any]) -> None:
        """One line."""
        with _write_errors(self.path):
            self._file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def fall_back(self, good: Mapping[str, int], last: str) -> str:
        """Make the captions those of `stage_of_captions`, which it returns."""
        if (stage := stage_of_captions(good, last)) not in (last, ""):
            self.take_captions_of(stage)
        return stage

    def take_captions_of(self, stage: str) -> None:
        """Make the texts of ``stage`` the captions of all that was written, where it has one."""
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
    """The line of an item; ``last`` is the stage whose text becomes the caption."""
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
    """The texts of a stage in a line, one or one for each reference; empty where it has none."""
    return [texts[stage] for texts in (value["stages"], *value.get("others", ())) if stage in texts]


def picture_path(picture: Picture, out: Path) -> str:
    """Returns where the picture lies, for a result at ``out``: relative where it is below its folder."""
    return relative(picture.path if isinstance(picture, FilePicture) else drawn(picture, out), out)


def relative(path: Path, out: Path) -> str:
    """As POSIX text: relative to the result's folder where it is below that, else absolute."""
    path, folder = path.absolute(), out.parent.absolute()
    return (path.relative_to(folder) if path.is_relative_to(folder) else path).as_posix()


def drawn(picture: Picture, out: Path) -> Path:
    """A picture that is no file, as a PNG named after its content, in ``RESULT_pictures`` beside the result."""
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
    """Returns what made a result: equal but for ``data`` and ``shard`` in the parts of one job, on whatever machine."""
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
    """Returns where it stands what made a result."""
    return path.with_name(path.name + ".made.json")


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a result. Raises `UsageError` with the number of a line that is none."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                try:
                    value = parse_json(line)
                    whole = is_record(value)
                except (ValueError, KeyError, TypeError, AttributeError):
                    whole = False
                if not whole:
                    raise UsageError(f"{path}, line {number}: not a line that 'tellapart boost' writes")
                yield value
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None


def stage_of_captions(good: Mapping[str, int], last: str) -> str:
    """The stage whose texts are the captions: the ``last``, or, where it has none, the first of `FALLBACK` that has.

    "" where none has any. ``good``: how many texts there are of each stage.
    """
    return next((name for name in (last, *FALLBACK) if good.get(name)), "")


def is_record(value: Any) -> bool:
    """Returns whether a line has the keys of `record`, each of its type. May raise `KeyError` and the like."""
    lists = [value["captions"], value.get("references", [])]
    tables = [value["stages"], value.get("bad") or {}, *value.get("others", ())]
    texts = [value["id"], value["image"], *(text for table in tables for text in table.values())]
    texts += [text for texts in lists for text in texts]
    return all(isinstance(each, list) for each in lists) and all(isinstance(text, str) for text in texts)


def merge(parts: Iterable[Path], out: Path) -> int:
    """Join the results of ``--shard 1/n`` to ``n/n``, given in any order, as one job would have written them.

    Returns how many items there are. Raises `UsageError` where a part is missing, double, or of another job.
    """
    found: dict[tuple[int, int], tuple[Path, dict[str, Any]]] = {}
    for path in parts:
        made = _read_made(path)
        place, of = made.pop("shard")
        made.pop("data")
        made.pop("captions_of", None)  # of this part alone; below it is decided for the whole
        if (place, of) in found:
            raise UsageError(f"{path}: is part {place}/{of}, and so is {found[place, of][0]}")
        found[place, of] = (path, made)
    (_, of), (first, same) = min(found.items())
    for path, made in found.values():
        if made != same:
            key = next(key for key in {**same, **made} if made.get(key) != same.get(key))
            raise UsageError(f"{path} and {first} are not of one job: their {key} differ")
    lacking = [place for place in range(1, of + 1) if (place, of) not in found]
    if lacking or len(found) != of:
        raise UsageError(f"part {lacking[0]}/{of} is not among these" if lacking else "the parts are of several n")
    count, good = 0, Counter[str]()
    spec, last = _read_made(first)["data"], same["stages"][-1]["name"]
    with Output.open(out, {"data": spec, **same, "shard": [1, 1]}) as output:
        for place in range(1, of + 1):
            path = found[place, of][0]
            for value in read_records(path):
                value["image"] = relative(path.parent / value["image"], out)
                value["captions"] = texts_of(value, last) or value["references"]
                output.write(value)
                good.update(value["stages"].keys())
                count += 1
        output.fall_back(good, last)
    return count


def _read_made(path: Path) -> dict[str, Any]:
    try:
        made: dict[str, Any] = parse_json(made_file(path).read_text(encoding="utf-8"))
        place, of = made["shard"]
        if not (path.is_file() and 1 <= place <= of and {"data", "items", "ids", "stages"} <= made.keys()):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{path}: no whole result of 'tellapart boost' with its {made_file(path).name}") from None
    return made


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


def _write_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    return write_errors(path, "answers are in the ledger, mend that and go on")
