"""Who wrote a caption: a log beside the captions has the hash of every text that tellapart wrote there.

A text that is not in the log, or that changed since, is a person's. `FILE_NAME` is one hidden file in the folder of the
captions, with JSON objects, a line each, which are only ever appended. ``file`` says of which captions a line is: the
name of a file of captions, whose rows are called by the ids of pictures, or ``*.txt`` (``*.xmp``, …), whose rows are
the files of that suffix in the folder, by name.

    {"file": "captions.jsonl", "settings": {"decoding": …}}                        these captions were begun anew
    {"file": "captions.jsonl", "id": "1.jpg", "text": HASH, "picture": […]}        a caption, and its picture
    {"file": "*.txt", "id": "1.txt", "text": HASH}                                 a text in a file of its own

A line is written before the text that it is of, so a process that is killed leaves no text of ours that looks like a
person's; of each row the last two texts are known. The picture is recorded by the bytes that were decoded
(`PictureRecord`): neither the spelling of a path nor the place of a folder matters.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tellapart.data.pictures import StoredPicture
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.types import Item, Picture
from tellapart.utils.messages import parse_json

FILE_NAME = ".tellapart-captions.jsonl"


@dataclass(frozen=True)
class PictureRecord:
    """The picture of a caption. ``content``: the key of its bytes, "" if it was replaced while it was captioned;
    ``place``: a hash of its path; ``size`` in bytes and ``time_ns`` are those of its file."""

    size: int
    time_ns: int
    content: str
    place: str

    @classmethod
    def of(cls, picture: Picture, content: str | None = None) -> PictureRecord | None:
        """Returns the record of a picture as it is now; None if it cannot be read.

        ``content``: the key of the bytes that were read after this call began, if it is known.
        """
        try:
            if not isinstance(picture, StoredPicture):
                key = picture.key() if content is None else content
                return cls(0, 0, key, text_hash(key))
            size, time_ns = picture.signature()
            return cls(size, time_ns, picture.key() if content is None else content, _place(picture))
        except PictureError:
            return None

    def if_unchanged(self, picture: Picture) -> PictureRecord:
        """Returns this record, without the content if the picture's file was replaced since."""
        if not isinstance(picture, StoredPicture):
            return self
        now = self.of(picture, "")
        return self if now is not None and replace(now, content=self.content) == self else replace(self, content="")

    def is_of(self, picture: Picture) -> bool:
        """Returns whether the picture has this content. A file of the same size and time is not read."""
        if not self.content:
            return False
        if not isinstance(picture, StoredPicture):
            return picture.key() == self.content
        if picture.signature() == (self.size, self.time_ns) and _place(picture) == self.place:
            return True
        return picture.key() == self.content


def _place(picture: StoredPicture) -> str:
    return text_hash(os.path.realpath(picture.address()))


def text_hash(text: str) -> str:
    """Returns 24 hexadecimal digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


@dataclass(frozen=True)
class TextRow:
    """One text in the log. ``hashes``: of the last two that tellapart wrote; ``captions``: what the captioner
    wrote, where the text was made of that."""

    hashes: tuple[str, ...] = ()
    picture: PictureRecord | None = None
    captions: tuple[str, ...] = ()

    @classmethod
    def new(cls, text: str | None, picture: PictureRecord | None = None, captions: Sequence[str] = ()) -> TextRow:
        """Returns the row of a text that is to be written."""
        return cls(() if text is None else (text_hash(text),), picture, tuple(captions))

    def line(self, file: str, key: str) -> str:
        """Returns its line in the log."""
        value: dict[str, Any] = {"file": file, "id": key}
        if self.hashes:
            value["text"] = self.hashes[-1]
        if self.picture is not None:
            value["picture"] = [self.picture.size, self.picture.time_ns, self.picture.content, self.picture.place]
        if self.captions:
            value["captions"] = self.captions
        return json.dumps(value) + "\n"

    def with_line(self, value: Mapping[str, Any]) -> TextRow:
        """Returns the row after one more line of the log."""
        hashes = dict.fromkeys([*self.hashes, *([str(value["text"])] if "text" in value else [])])
        picture = PictureRecord(*value["picture"]) if "picture" in value else self.picture
        captions = tuple(map(str, value["captions"])) if "captions" in value else self.captions
        return TextRow(tuple(hashes)[-2:], picture, captions)


@dataclass(frozen=True)
class JournaledRun:
    """One change of many texts by a command, for the journal (`captions.journal`): its id, and its first line."""

    change: str
    head: str


class Provenance:
    """The part of a folder's log that is of one file of captions. ``settings``: those that began it; None: unknown."""

    def __init__(self, path: Path, file: str, settings: dict[str, Any] | None, rows: dict[str, TextRow]) -> None:
        self.path, self.file, self.settings, self.rows = path, file, settings, rows
        self._begun: list[str] = []  # the line of `begin`, which is written with the first text
        self._headed: JournaledRun | None = None  # the change whose head is written

    @classmethod
    def open(cls, captions: Path) -> Provenance:
        """Returns what the log beside a file of captions says of it. Damaged lines count as not written.

        Raises `TellapartError` for a log that cannot be read: our own texts would count as a person's.
        """
        path, file = captions.parent / FILE_NAME, captions.name
        found, begins = cls(path, file, None, {}), json.dumps({"file": file})[:-1].encode() + b","
        try:
            with path.open("rb") as lines:
                for line in lines:
                    if line.startswith(begins):
                        with contextlib.suppress(ValueError, KeyError, TypeError):
                            found._take(parse_json(line))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise TellapartError(f"{path}: cannot be read ({error.strerror}), and it says which texts are tellapart's; "
                                 "make it readable") from None  # fmt: skip
        return found

    def _take(self, value: Mapping[str, Any]) -> None:
        if "settings" in value:
            self.settings, self.rows = dict(value["settings"]), {}
        else:
            self.rows[value["id"]] = self.rows.get(value["id"], TextRow()).with_line(value)

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Forgets the rows: these captions are begun anew."""
        self._begun = [json.dumps({"file": self.file, "settings": settings}, sort_keys=False) + "\n"]
        self.settings, self.rows = json.loads(json.dumps(settings)), {}

    def record(
        self, rows: Mapping[str, TextRow], run: JournaledRun | None = None, before: Mapping[str, str] | None = None
    ) -> None:
        """Writes down texts that are about to be written.

        run: the change that they are a part of; ``before``: the texts that they replace.
        """
        values = [json.loads(row.line(self.file, key)) for key, row in rows.items()]
        if run is not None:
            for value in values:
                value["change"] = run.change
                value |= {"before": before[value["id"]]} if before and value["id"] in before else {}
        self._write(values, run)

    def record_removed(self, texts: Mapping[str, str], run: JournaledRun) -> None:
        """Writes down texts that are about to be removed."""
        self._write(
            [{"file": self.file, "id": key, "change": run.change, "removed": True, "before": text}
             for key, text in texts.items()],
            run,
        )  # fmt: skip

    def _write(self, values: Sequence[dict[str, Any]], run: JournaledRun | None) -> None:
        if not values:
            return
        head = [run.head] if run is not None and self._headed != run else []
        removed = [json.dumps(value) + "\n" for value in values if "removed" in value]
        rest = [json.dumps(value) + "\n" for value in values if "removed" not in value]
        self._append([*head, *removed, *(self._begun if rest else ()), *rest])
        self._begun, self._headed = [] if rest else self._begun, run or self._headed
        for value in values:
            self._take(value)

    def wrote(self, key: str, text: str) -> bool:
        """Returns whether tellapart wrote this text."""
        return key in self.rows and text_hash(text) in self.rows[key].hashes

    def _append(self, lines: Sequence[str]) -> None:
        """Whole lines, also after half a line of a process that was killed."""
        if not lines:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = file.seek(0, os.SEEK_END)
            whole = not size or os.pread(file.fileno(), 1, size - 1) == b"\n"
            try:
                file.write(("" if whole else "\n").encode() + "".join(lines).encode("utf-8", "surrogatepass"))
                file.flush()
            except OSError as error:
                with contextlib.suppress(OSError):
                    file.truncate(size)
                error.filename = str(self.path)
                raise


def back_up(captions: Path, texts: Mapping[str, str]) -> Path:
    """Appends texts of people, by row, to the backup beside a file of captions; returns its path."""
    backup = captions.with_name(f"{captions.name.removeprefix('*.')}.replaced.jsonl")
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    lines = [json.dumps({"id": key, "text": text, "replaced": now}) + "\n" for key, text in texts.items()]
    backup.parent.mkdir(parents=True, exist_ok=True)
    with backup.open("a", encoding="utf-8") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    return backup


def match_pictures(
    items: Iterable[Item], rows: Mapping[str, TextRow], present: Collection[str], where: Path
) -> tuple[set[str], set[str]]:
    """Returns the ids of the items whose caption is ``present``, and the ids whose picture was replaced since.

    A caption is an item's if it has the item's id, and also if its own id is not among the items and the picture is the
    same: the path may be spelled in another way. Raises `UsageError`, which begins with ``where``, if pictures of two
    places have the same id.
    """
    done, replaced, others, todo, ids = set[str](), set[str](), list[Item](), list[Item](), set[str]()
    for item in items:
        ids.add(item.id)
        if item.id not in present:
            todo.append(item)
            continue
        known = rows[item.id].picture if item.id in rows else None
        try:
            same = known is None or known.is_of(item.picture)
        except PictureError:  # reported where it is read
            same = True
        if same:
            done.add(item.id)
        elif known is not None and (now := PictureRecord.of(item.picture, "")) and now.place == known.place:
            replaced.add(item.id)
        else:
            others.append(item)
    if others:
        raise UsageError(
            f"{where}: has the captions of other pictures with the same ids, such as '{others[0].id}' "
            f"({len(others):,} in all); name another file with -o"
        )
    done |= set(renamed_ids(todo, {key: rows[key] for key in present if key in rows and key not in ids}).values())
    return done, replaced


def renamed_ids(items: Iterable[Item], rows: Mapping[str, TextRow]) -> dict[str, str]:
    """Returns, by the ids of rows that are no item's, the id of the item with the same picture."""
    items = list(items)
    ids = {item.id for item in items}
    rest = {row.picture.content: (key, row.picture.size) for key, row in rows.items()
            if key not in ids and row.picture is not None and row.picture.content}  # fmt: skip
    sizes, found = {size for _, size in rest.values()}, dict[str, str]()
    for item in items if rest else ():
        with contextlib.suppress(PictureError):
            size = item.picture.signature()[0] if isinstance(item.picture, StoredPicture) else 0
            if item.id not in rows and size in sizes and (content := item.picture.key()) in rest:
                found[rest[content][0]] = item.id
    return found


class OwnFiles:
    """The texts in files of their own, beside pictures in any number of folders, that tellapart wrote."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str], Provenance] = {}

    def of(self, path: Path) -> Provenance:
        """Returns the log of the files of this suffix in the folder of ``path``."""
        key = path.parent, f"*{path.suffix.lower()}"
        if key not in self._known:
            self._known[key] = Provenance.open(path.parent / key[1])
        return self._known[key]

    def is_own(self, path: Path, text: str) -> bool:
        """Returns whether tellapart wrote this text there."""
        return self.of(path).wrote(path.name, text)

    def are_own(self, picture: Path, texts: Sequence[str]) -> bool:
        """Returns whether tellapart wrote these texts of a picture: beside it, or in a list above."""
        said = {" ".join(text.split()) for text in texts}
        for path in (picture.with_suffix(".txt"), picture.with_suffix(".caption")):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                text = path.read_text(encoding="utf-8")
                if said <= {" ".join(part.split()) for part in (text, *text.split("\n"))}:
                    return self.is_own(path, text)
        hashes = {text_hash(text) for text in ("\n".join(texts), *texts)}
        return any(not hashes.isdisjoint(self._listed(folder)) for folder in picture.parents)

    def _listed(self, folder: Path) -> set[str]:
        """The hashes of the texts in the list of a folder."""
        key = folder, "metadata.jsonl"
        if key not in self._known:
            self._known[key] = Provenance.open(folder / key[1])
        return {text for row in self._known[key].rows.values() for text in row.hashes}

    def record(
        self,
        texts: Mapping[Path, str],
        pictures: Mapping[Path, PictureRecord | None] | None = None,
        run: JournaledRun | None = None,
        before: Mapping[Path, str] | None = None,
    ) -> None:
        """Writes down texts that are about to be written, with the pictures that they are of; see `Provenance`."""
        for log, paths in self._by_log(texts):
            rows = {path.name: TextRow.new(texts[path], (pictures or {}).get(path)) for path in paths}
            log.record(rows, run, {path.name: before[path] for path in paths if path in before} if before else None)

    def back_up(self, texts: Mapping[Path, str]) -> list[Path]:
        """Keeps texts of people that are about to be replaced; returns the files in which they are."""
        return [
            back_up(log.path.with_name(log.file), {path.name: texts[path] for path in paths})
            for log, paths in self._by_log(texts)
        ]

    def _by_log(self, texts: Mapping[Path, str]) -> Iterator[tuple[Provenance, list[Path]]]:
        groups: dict[str, tuple[Provenance, list[Path]]] = {}
        for path in texts:
            log = self.of(path)
            groups.setdefault(f"{log.path}\n{log.file}", (log, []))[1].append(path)
        yield from groups.values()
