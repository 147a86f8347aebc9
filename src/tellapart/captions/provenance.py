"""Tracks who wrote a caption: a log beside the captions stores the hash of every text that tellapart wrote there.

A text that is not in the log, or that has changed, counts as a person's. The log is a hidden file of JSON lines in the
folder of the captions (`captions.log_file`). In each line, ``file`` says which captions it describes: a file of
captions, whose rows are identified by picture ids, or ``*.txt`` (``*.xmp``, …), all files in the folder with that
suffix, whose rows are identified by file names.

    {"file": "captions.jsonl", "settings": {"decoding": …}}                        these captions were started again
    {"file": "captions.jsonl", "id": "1.jpg", "text": HASH, "picture": […]}        a caption, and its picture
    {"file": "*.txt", "id": "1.txt", "text": HASH}                                 a text in a file of its own

Lines are written before the texts that they describe, so a text that tellapart wrote never looks like a person's, even
if the process is killed. The log remembers the last few texts of each row (`RECENT`). A picture is identified by the
bytes that were decoded (`PictureRecord`), independently of its path and folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tellapart.captions import log_file
from tellapart.data.pictures import StoredPicture
from tellapart.errors import PictureError, UsageError
from tellapart.types import Item, Picture
from tellapart.utils.strict_json import parse_json

RECENT = 4  # texts remembered per row, because a killed process may have recorded texts that it did not write


@dataclass(frozen=True)
class PictureRecord:
    """Record of a caption's picture. ``content``: the key of its bytes, "" if it was replaced during captioning;
    ``place``: a hash of its path; ``size`` (bytes) and ``time_ns`` (modification time): those of its file.
    """

    size: int
    time_ns: int
    content: str
    place: str

    @classmethod
    def of(cls, picture: Picture, content: str | None = None) -> PictureRecord | None:
        """Records a picture in its current state; returns None if it cannot be read.

        ``content``: the content key to record; None: computed here. If it comes from bytes that the caller reads, read
        them after this call, so that a later change to the file is noticed.
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
        """Returns this record, with an empty ``content`` if the picture's file has been replaced since."""
        if not isinstance(picture, StoredPicture):
            return self
        now = self.of(picture, "")
        return self if now is not None and replace(now, content=self.content) == self else replace(self, content="")

    def is_of(self, picture: Picture) -> bool:
        """Returns whether the picture still has this content. Does not read files whose size and modification time are
        unchanged.
        """
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
    """One row in the log. ``hashes``: the hashes of the last texts that tellapart wrote; ``captions``: the captioner's
    captions from which the text was made, if any.
    """

    hashes: tuple[str, ...] = ()
    picture: PictureRecord | None = None
    captions: tuple[str, ...] = ()

    @classmethod
    def new(cls, text: str | None, picture: PictureRecord | None = None, captions: Sequence[str] = ()) -> TextRow:
        """Creates the row for a text that is about to be written."""
        return cls(() if text is None else (text_hash(text),), picture, tuple(captions))

    def line(self, file: str, key: str) -> str:
        """Returns the line to write to the log."""
        value: dict[str, Any] = {"file": file, "id": key}
        if self.hashes:
            value["text"] = self.hashes[-1]
        if self.picture is not None:
            value["picture"] = [self.picture.size, self.picture.time_ns, self.picture.content, self.picture.place]
        if self.captions:
            value["captions"] = self.captions
        return json.dumps(value) + "\n"

    def with_line(self, value: Mapping[str, Any]) -> TextRow:
        """Returns the row as updated by one more line of the log."""
        hashes = dict.fromkeys([*self.hashes, *([str(value["text"])] if "text" in value else [])])
        if "text" in value and (before := text_hash(str(value.get("before")))) in self.hashes:
            # Forgets texts that killed processes recorded but did not write.
            hashes = dict.fromkeys([before, str(value["text"])])
        picture = PictureRecord(*value["picture"]) if "picture" in value else self.picture
        captions = tuple(map(str, value["captions"])) if "captions" in value else self.captions
        return TextRow(tuple(hashes)[-RECENT:], picture, captions)


@dataclass(frozen=True)
class JournaledRun:
    """A command's change to many texts, for the journal (`captions.journal`): its id and its head line."""

    change: str
    head: str


class Provenance:
    """The part of a folder's log about one file of captions. ``settings``: the settings with which the file was
    started; None: unknown.
    """

    def __init__(self, path: Path, file: str, settings: dict[str, Any] | None, rows: dict[str, TextRow]) -> None:
        self.path, self.file, self.settings, self.rows = path, file, settings, rows
        self._begun: list[str] = []  # the line from `begin`, which is written together with the first text
        self._headed: JournaledRun | None = None  # the change whose head line has been written

    @classmethod
    def open(cls, captions: Path) -> Provenance:
        """Reads the log's entries about a file of captions. Ignores damaged lines.

        Raises `TellapartError` if the log cannot be read, because texts that tellapart wrote would then count as a
        person's.
        """
        path, file = captions.parent / log_file.FILE_NAME, captions.name
        found, begins = cls(path, file, None, {}), json.dumps({"file": file})[:-1].encode() + b","
        with log_file.opened(path) as lines:
            for line in lines or ():
                if line.startswith(begins):
                    with contextlib.suppress(ValueError, KeyError, TypeError):
                        found._take(parse_json(line))
        return found

    def _take(self, value: Mapping[str, Any]) -> None:
        if "settings" in value:
            self.settings, self.rows = dict(value["settings"]), {}
        else:
            self.rows[value["id"]] = self.rows.get(value["id"], TextRow()).with_line(value)

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Clears the rows, because these captions are started over."""
        self._begun = [json.dumps({"file": self.file, "settings": settings}, sort_keys=False) + "\n"]
        self.settings, self.rows = json.loads(json.dumps(settings)), {}

    def record(
        self, rows: Mapping[str, TextRow], run: JournaledRun | None = None, before: Mapping[str, str] | None = None
    ) -> None:
        """Records texts that are about to be written.

        ``run``: the change that they belong to; ``before``: the texts that they replace.
        """
        values = [json.loads(row.line(self.file, key)) for key, row in rows.items()]
        if run is not None:
            for value in values:
                value["change"] = run.change
                value |= {"before": before[value["id"]]} if before and value["id"] in before else {}
        self._write(values, run)

    def record_removed(self, texts: Mapping[str, str], run: JournaledRun) -> None:
        """Records texts that are about to be removed."""
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
        with log_file.locked(self.path) as file:
            lines = [*head, *removed, *(self._begun if rest else ()), *rest]
            log_file.append_lines(file, lines, self.path, sync=False)
        self._begun, self._headed = [] if rest else self._begun, run or self._headed
        for value in values:
            self._take(value)

    def wrote(self, key: str, text: str) -> bool:
        """Returns whether tellapart wrote this text."""
        return key in self.rows and text_hash(text) in self.rows[key].hashes


def back_up(captions: Path, texts: Mapping[str, str]) -> Path:
    """Appends people's texts, given by row, to the backup beside a file of captions; returns the backup's path."""
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
    """Returns the ids of items that already have a caption (``present``), and of items whose picture has been replaced.

    A caption belongs to the item with its id or, if there is none, to an item with the same picture, because a path can
    be spelled in several ways. Raises a `UsageError` that begins with ``where`` if pictures in two places have the same
    id.
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
        except PictureError:  # reported when it is read
            same = True
        if same:
            done.add(item.id)
        elif known is not None and (now := PictureRecord.of(item.picture, "")) and now.place == known.place:
            replaced.add(item.id)
        else:
            others.append(item)
    if others:
        raise UsageError(
            f"{where} contains captions of other pictures with the same ids, such as '{others[0].id}' "
            f"({len(others):,} in total); specify another file with -o"
        )
    done |= set(renamed_ids(todo, {key: rows[key] for key in present if key in rows and key not in ids}).values())
    return done, replaced


def renamed_ids(items: Iterable[Item], rows: Mapping[str, TextRow]) -> dict[str, str]:
    """Maps the ids of rows that do not match any item to the id of the item with the same picture."""
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
    """Tracks the text files that tellapart wrote beside pictures, in any number of folders."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str], Provenance] = {}

    def of(self, path: Path) -> Provenance:
        """Returns the log for the files that are in the folder of ``path`` and have its suffix."""
        key = path.parent, f"*{path.suffix.lower()}"
        if key not in self._known:
            self._known[key] = Provenance.open(path.parent / key[1])
        return self._known[key]

    def is_own(self, path: Path, text: str) -> bool:
        """Returns whether tellapart wrote this text there."""
        return self.of(path).wrote(path.name, text)

    def are_own(self, picture: Path, texts: Sequence[str]) -> bool:
        """Returns whether tellapart wrote these texts of a picture, beside it or in the ``metadata.jsonl`` of a parent
        folder.
        """
        said = {" ".join(text.split()) for text in texts}
        for path in (picture.with_suffix(".txt"), picture.with_suffix(".caption")):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                text = path.read_text(encoding="utf-8")
                if said <= {" ".join(part.split()) for part in (text, *text.split("\n"))}:
                    return self.is_own(path, text)
        hashes = {text_hash(text) for text in ("\n".join(texts), *texts)}
        return any(not hashes.isdisjoint(self._listed(folder)) for folder in picture.parents)

    def _listed(self, folder: Path) -> set[str]:
        """Returns the hashes of the texts that tellapart wrote to the folder's ``metadata.jsonl``."""
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
        """Records texts that are about to be written, with their pictures (see `Provenance`)."""
        for log, paths in self._by_log(texts):
            rows = {path.name: TextRow.new(texts[path], (pictures or {}).get(path)) for path in paths}
            log.record(rows, run, {path.name: before[path] for path in paths if path in before} if before else None)

    def back_up(self, texts: Mapping[Path, str]) -> list[Path]:
        """Backs up people's texts that are about to be replaced; returns the backup files."""
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
