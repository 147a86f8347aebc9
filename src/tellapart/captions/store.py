"""The captions of a folder: each picture's text, author and state. Every change can be undone.

    store = CaptionStore.open("photos")                    # or open("photos", Path("captions.jsonl"))
    store.captions()["1.jpg"].text
    store.write({"1.jpg": Edit("a red bus")}, "edit")      # written by a person
    store.write(texts, "caption", Author("blip", prompt))  # written by a model: keeps people's texts
    store.undo(store.last(1))

A text that tellapart did not write counts as a person's. Changes are written first to the journal (`captions.journal`),
then to the files. Files are written under a temporary name and renamed, so neither is damaged if the process is killed.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tellapart.captions.authors import PERSON, Author
from tellapart.captions.journal import Journal, JournalChange, LoggedRow, RowChange
from tellapart.captions.journaled_run import JournaledRun, head_line, new_change_id, new_run
from tellapart.captions.layout import CaptionLayout, TextPlace
from tellapart.captions.layouts import open_layout
from tellapart.captions.log_row import TextRow
from tellapart.captions.picture_record import PictureRecord
from tellapart.captions.text_hash import text_hash
from tellapart.data.dataset import Dataset
from tellapart.data.open import open_many
from tellapart.data.pictures import StoredPicture
from tellapart.data.specification import parse
from tellapart.errors import PictureError, UsageError
from tellapart.types import Item

MOVE = "move"  # the kind of change that moves a text to its renamed picture; it cannot be undone
STATE = ("accepted", "decorative", "language", "candidates", "doubts", "texts", "variation")


@dataclass(frozen=True)
class StoredCaption:
    """A picture's caption. ``version`` changes with any field. Without a caption, ``text`` is "" and ``author`` None.

    ``texts``: additional texts by name: ``long``, or a language such as ``de``. ``doubts``: (kind, detail) pairs.
    ``variation``: what the captioner's samples agree and disagree on (`tellapart.purposes.variation`).
    """

    id: str
    text: str = ""
    author: Author | None = None
    accepted: bool = False
    decorative: bool = False
    language: str = ""
    candidates: tuple[str, ...] = ()
    doubts: tuple[tuple[str, str], ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    variation: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""

    @property
    def is_persons(self) -> bool:
        """Returns whether a person wrote or accepted the text, or marked the picture as needing no text."""
        return (self.author is not None and self.author.is_person) or self.accepted or self.decorative


@dataclass(frozen=True)
class Edit:
    """An edit to one caption.

    text: the new text; None keeps the current text.
    state: fields of `STATE` to set; the value None removes a field.
    """

    text: str | None = None
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WriteResult:
    """Result of a write: the change (None if nothing changed), and the ids by outcome.

    stayed: hand-written texts that a model's write left unchanged.
    replaced: hand-written texts that were replaced.
    conflicts: rows that have changed since the version that the caller saw.
    """

    change: str | None
    written: tuple[str, ...] = ()
    stayed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Version:
    """One entry in a picture's history: the change, and the text before and after it (None: no text)."""

    change: JournalChange
    author: Author
    before: str | None
    after: str | None
    state: Mapping[str, Any]


class CaptionStore:
    """The captions of some pictures, in one layout. Thread-safe."""

    def __init__(self, items: Sequence[Item], layout: CaptionLayout) -> None:
        self.items = {item.id: item for item in items}
        self.layout = layout
        self._logs: dict[Path, Journal] = {}
        self._lock = threading.RLock()

    @classmethod
    def open(
        cls, pictures: str | Path | Dataset, captions: Path | None = None, folder: Path | None = None
    ) -> CaptionStore:
        """Opens the captions of a folder (or other data set).

        Args:
            captions: a file of captions, or a suffix (``.txt``, ``.xmp``); None uses the folder's layout, by default a
                ``.txt`` file next to each picture.
            folder: if ``pictures`` is an opened data set, the folder to search for lists such as ``captions.jsonl``.

        Raises `UsageError` if the data or the captions cannot be read.
        """
        dataset = pictures if isinstance(pictures, Dataset) else open_many([str(pictures)])
        if not isinstance(pictures, Dataset):
            folder = parse(str(pictures))[1]
        layout = open_layout(list(dataset), folder if folder is not None and folder.is_dir() else None, captions)
        return cls(list(dataset), layout)

    # Reading.

    def captions(self, ids: Sequence[str] | None = None) -> dict[str, StoredCaption]:
        """Reads pictures' current captions from disk, and returns them by id. ``ids``: None reads all, in order."""
        with self._lock:
            chosen = list(self.items) if ids is None else list(ids)
            raws = self.layout.read(chosen)
            self._refresh(chosen)
            return {id_: self._caption(id_, raws.get(id_)) for id_ in chosen}

    def caption(self, id_: str) -> StoredCaption:
        """Reads the current caption of one picture from disk."""
        return self.captions([id_])[id_]

    def _caption(self, id_: str, raw: str | None) -> StoredCaption:
        logged = self._row(self.layout.place(id_))
        state = self._state(id_, logged)
        author = None if raw is None or not (raw.strip() or logged.row.hashes) else logged.author(raw)
        return StoredCaption(
            id_,
            self._text(id_, raw),
            author,
            bool(state.get("accepted")),
            bool(state.get("decorative")),
            str(state.get("language") or ""),
            tuple(map(str, state.get("candidates") or ())),
            tuple((str(kind), str(detail)) for kind, detail in state.get("doubts") or ()),
            {str(name): str(text) for name, text in (state.get("texts") or {}).items()},
            dict(state.get("variation") or {}),
            text_hash(json.dumps([raw, state], sort_keys=True)),
        )

    def _text(self, id_: str, raw: str | None) -> str:
        return "" if raw is None else _text(self.layout.text(id_, raw))

    def _state(self, id_: str, logged: LoggedRow) -> dict[str, Any]:
        return {**logged.state, **self.layout.state(id_)}

    def _row(self, place: TextPlace) -> LoggedRow:
        log = self._logs.get(place.folder)
        return (log and log.rows.get((place.file, place.key))) or LoggedRow()

    def _refresh(self, ids: Iterable[str]) -> None:
        for folder in {self.layout.place(id_).folder for id_ in ids}:
            if folder in self._logs:
                self._logs[folder].refresh()
            else:
                self._logs[folder] = Journal.open(folder)

    # Writing.

    def write(
        self,
        edits: Mapping[str, Edit],
        what: str,
        author: Author = PERSON,
        *,
        versions: Mapping[str, str] | None = None,
        replace_edited: bool = False,
        run: JournaledRun | None = None,
    ) -> WriteResult:
        """Writes texts and states as a single change in the journal.

        Args:
            what: the kind of change for the history, such as ``edit`` or ``lora``.
            author: the author of the texts. A model does not replace texts that a person wrote or accepted, unless
                ``replace_edited`` is set. The journal keeps every replaced text.
            versions: the `StoredCaption.version` of each row that the caller last saw. A row that has changed since is
                left unchanged and returned as a conflict.
            run: the change that the edits belong to; None starts a new change.

        Raises `UsageError` if the layout is read-only or another process is writing the file; `TellapartError` if the
        disk is full or the files cannot be written.
        """
        with self._locked(edits):
            raws = self.layout.read(list(edits))
            now = {id_: self._caption(id_, raws.get(id_)) for id_ in edits}
            conflicts = [id_ for id_ in edits if versions is not None and versions.get(id_) != now[id_].version]
            new: dict[str, tuple[str | None, dict[str, Any]]] = {}
            stayed, replaced = list[str](), list[str]()
            for id_, edit in edits.items():
                before = raws.get(id_), self._state(id_, self._row(self.layout.place(id_)))
                after = self._edited(id_, edit, before, author)
                if id_ in conflicts or before == after:
                    continue
                if not author.is_person and now[id_].is_persons:
                    (replaced if replace_edited else stayed).append(id_)
                    if not replace_edited:
                        continue
                new[id_] = after
            authors = {id_: author for id_, (raw, _) in new.items() if raw != raws.get(id_)}
            change = self._commit(run or new_run(what, author), author, new, raws, authors)
            return WriteResult(change, tuple(new), tuple(stayed), tuple(replaced), tuple(conflicts))

    def _edited(
        self, id_: str, edit: Edit, before: tuple[str | None, dict[str, Any]], author: Author
    ) -> tuple[str | None, dict[str, Any]]:
        raw, state = before
        changed = edit.text is not None and edit.text != self._text(id_, raw)
        if changed and edit.text is not None:
            raw = self.layout.raw(id_, edit.text)
        if raw is None and edit.state.get("decorative") and self.layout.shows_state:
            raw = ""  # the state can only be stored in a row
        if changed and not author.is_person:  # the rest of the state describes the previous text
            state = {name: value for name, value in state.items() if name in ("language", "texts")}
        if changed or edit.state.get("accepted"):
            state = {name: value for name, value in state.items() if name != "doubts"}
        added = json.loads(json.dumps(dict(edit.state)))  # the form on disk, so that an equal state compares equal
        return raw, _without_empty({**state, **added})

    def _commit(
        self,
        run: JournaledRun,
        author: Author,
        new: Mapping[str, tuple[str | None, Mapping[str, Any]]],
        raws: Mapping[str, str],
        authors: Mapping[str, Author],
    ) -> str | None:
        """Writes the journal, then the files. ``authors``: the authors of the changed texts."""
        if not new:
            return None
        lines: dict[Path, list[str]] = {}
        for id_, (raw, state) in new.items():
            place = self.layout.place(id_)
            value: dict[str, Any] = {"file": place.file, "id": place.key, "change": run.change}
            if id_ in authors:
                value |= _text_fields(raw, raws.get(id_), authors[id_], author)
            before = self._state(id_, self._row(place))
            if dict(state) != before:
                value |= {"state": dict(state), "was": before}
            picture = self._picture(id_)
            if picture is not None and picture != self._row(place).row.picture:
                value["picture"] = [picture.size, picture.time_ns, picture.content, picture.place]
            lines.setdefault(place.folder, [run.head]).append(json.dumps(value) + "\n")
        for folder, some in lines.items():
            self._logs[folder].append(some)
        texts = {id_: raw for id_, (raw, _) in new.items() if id_ in authors}
        self.layout.write(texts, {id_: state for id_, (_, state) in new.items()})
        for folder in lines:
            self._logs[folder].compact()
        return run.change

    def _picture(self, id_: str) -> PictureRecord | None:
        """Returns the picture's record. Does not read the file if it has not changed since it was last recorded."""
        picture, known = self.items[id_].picture, self._row(self.layout.place(id_)).row.picture
        with contextlib.suppress(PictureError):
            stored = picture.signature() if isinstance(picture, StoredPicture) else None
            if known is not None and known.content and stored == (known.size, known.time_ns):
                return known
        return PictureRecord.of(picture)

    @contextlib.contextmanager
    def _locked(self, ids: Iterable[str]) -> Iterator[None]:
        """Locks the store, its files and these pictures' logs. Raises `UsageError` in the same cases as `write`."""
        ids = list(ids)
        with self._lock, contextlib.ExitStack() as stack:
            if not self.layout.writable:
                self.layout.write({}, {})
            if unknown := next((id_ for id_ in ids if id_ not in self.items), None):
                raise UsageError(f"no picture is named '{unknown}'; the data set has {len(self.items):,} pictures")
            stack.enter_context(self.layout.locked())
            self.layout.read(ids)
            self._refresh(ids)
            for folder in sorted({self.layout.place(id_).folder for id_ in ids}):
                stack.enter_context(self._logs[folder].locked())
            yield

    # History.

    def changes(self) -> list[JournalChange]:
        """Returns all changes to these captions, oldest first. A change to several folders is listed only once."""
        with self._lock:
            self._refresh(self.items)
            files = {(place.folder, place.file) for place in map(self.layout.place, self.items)}
            merged: dict[str, JournalChange] = {}
            for log in self._logs.values():
                for change in log.changes.values():
                    if any((log.path.parent, self.layout.file_of(file)) in files for file, _ in change.rows):
                        merged.setdefault(change.id, change)
            return [merged[id_] for id_ in sorted(merged)]

    def size(self, change: str) -> int:
        """Returns the number of captions that a change affects."""
        return sum(len(log.changes[change].rows) for log in self._logs.values() if change in log.changes)

    def _changes_of(self, place: TextPlace) -> Iterator[tuple[JournalChange, RowChange]]:
        """Yields the changes to one row, newest first, including those before its picture was renamed."""
        log, key = self._logs.get(place.folder), (place.file, place.key)
        for change in reversed(list(log.changes.values())) if log else ():
            if (row := change.rows.get(key)) is not None:
                yield change, row
                key = (place.file, row.source) if row.source else key

    def active(self) -> list[JournalChange]:
        """Returns the changes that have not been undone, oldest first. Omits undos that were themselves undone."""
        undone, active = set[str](), list[JournalChange]()
        for change in reversed(self.changes()):
            if change.id not in undone:
                active.append(change)
                undone |= set(change.undoes)
        return active[::-1]

    def last(self, count: int) -> list[str]:
        """Returns the ids of the last changes that have not been undone, not counting undos and moves."""
        ids = [change.id for change in self.active() if not change.undoes and change.what != MOVE]
        return ids[-count:] if count > 0 else []

    def since(self, time: str) -> list[str]:
        """Returns the ids of all changes after a time in UTC (``2026-11-28T00:30:00``), including undos."""
        return [change.id for change in self.changes() if change.id > time]

    def history(self, id_: str) -> list[Version]:
        """Returns the versions of a picture's caption, newest first. Omits interrupted changes."""
        with self._lock:
            raw: str | None = self.layout.read([id_]).get(id_)
            self._refresh([id_])
            place, versions = self.layout.place(id_), list[Version]()
            for change, row in self._changes_of(place):
                if row.source is not None:
                    versions.append(Version(change, row.author, raw, raw, {}))
                elif row.text and row.after == _hash(raw):
                    versions.append(Version(change, row.author, row.before, raw, row.state or {}))
                    raw = row.before
                elif row.state is not None and not row.text:
                    versions.append(Version(change, change.author, raw, raw, row.state))
            return versions

    def undo(self, ids: Sequence[str]) -> WriteResult:
        """Undoes these changes, newest first. Skips texts that later changes have altered.

        Raises the same errors as `write`.
        """
        chosen = set(ids)
        files = [row for change in self.changes() if change.id in chosen for row in change.rows]
        keys = [key for file, key in files if self.layout.file_of(file) != file]
        # Restores other languages first, because the alt text that readers show may be one of them.
        parts = [CaptionStore(list(self.items.values()), part) for part in self.layout.parts(keys)]
        results = [store._undo(ids) for store in [*parts, self]]
        return WriteResult(
            results[-1].change,
            tuple(dict.fromkeys(id_ for result in results for id_ in result.written)),
            tuple(dict.fromkeys(id_ for result in results for id_ in result.stayed)),
        )

    def _undo(self, ids: Sequence[str]) -> WriteResult:
        chosen = set(ids)
        changes = [change for change in self.changes() if change.id in chosen]
        touched = {(file, key) for change in changes for file, key in change.rows}
        for log in self._logs.values():
            for now, before_it in log.moved.items():  # in this order, because a picture may have been renamed twice
                touched |= {now} if before_it in touched else set()
        rows = [id_ for id_ in self.items if self.layout.place(id_)[1:] in touched]
        with self._locked(rows):
            raws = self.layout.read(rows)
            new: dict[str, tuple[str | None, dict[str, Any]]] = {}
            stayed, authors = list[str](), dict[str, Author]()
            for id_ in rows:
                place = self.layout.place(id_)
                logged = self._row(place)
                before = raw, state = raws.get(id_), self._state(id_, logged)
                for change, row in self._changes_of(place):
                    if change.id not in chosen or row.source is not None:
                        continue
                    if row.text and row.after == _hash(raw):
                        raw = row.before
                    elif row.text and row.before != raw:
                        stayed.append(id_)
                        break
                    for name in {*(row.state or {}), *row.was}:
                        if row.state is not None and state.get(name) == row.state.get(name):
                            state = {**state, name: row.was.get(name)}
                state = _without_empty(state)
                if (raw, state) == before:
                    continue
                new[id_] = raw, state
                if raw != before[0]:
                    known = logged.authors.get(text_hash(raw)) if raw is not None else None
                    authors[id_] = known or PERSON
            change_id = self._commit(new_run("undo", PERSON, sorted(chosen)), PERSON, new, raws, authors)
            return WriteResult(change_id, tuple(new), tuple(dict.fromkeys(stayed)))

    # Renamed pictures.

    def remember(self) -> int:
        """Records the content of pictures whose text is not in the log yet. Returns the number of these pictures.

        If such a picture is later renamed or moved, `follow` can move its text along.
        """
        if not self.layout.writable:
            return 0
        with self._lock:
            raws = self.layout.read(list(self.items))
            self._refresh(raws)
            todo = [id_ for id_ in raws if self._row(self.layout.place(id_)).row.picture is None]
        records = {id_: record for id_ in todo if (record := PictureRecord.of(self.items[id_].picture))}
        by_folder: dict[Path, list[str]] = {}
        for id_, record in records.items():
            place = self.layout.place(id_)
            line = TextRow((), record).line(place.file, place.key)
            by_folder.setdefault(place.folder, []).append(line)
        with self._lock:
            for folder, lines in by_folder.items():
                with self._logs[folder].locked():
                    self._logs[folder].append(lines)
        return len(records)

    def follow(self) -> list[str]:
        """Moves texts along with their renamed or moved pictures, and returns the ids of these pictures.

        Raises the same errors as `write`.
        """
        if not self.layout.writable:
            return []
        with self._lock:
            raws = self.layout.read(list(self.items))
            strays = self.layout.strays()
            bare = [id_ for id_ in self.items if id_ not in raws]
            self._refresh(self.items)
            for place in strays:
                self._logs.setdefault(place.folder, Journal.open(place.folder))
            known = {row.picture.content: place for place in strays
                     if (row := self._row(place).row).picture is not None and row.picture.content}  # fmt: skip
            sizes = {row.picture.size for place in known.values() if (row := self._row(place).row).picture is not None}
            moved = []
            for id_ in bare if known else ():
                with contextlib.suppress(PictureError):
                    picture = self.items[id_].picture
                    size = picture.signature()[0] if isinstance(picture, StoredPicture) else 0
                    if size in sizes and (stray := known.pop(picture.key(), None)) is not None:
                        self._move(stray, id_, strays[stray])
                        moved.append(id_)
            return moved

    def _move(self, stray: TextPlace, id_: str, raw: str) -> None:
        """Moves a text to a picture, along with its author and state."""
        logged = self._row(stray)
        author = logged.author(raw)
        with self.layout.locked():
            place = self.layout.place(id_)
            place = place._replace(file=stray.file, key=Path(place.key).with_suffix(Path(stray.key).suffix).name
                                   if stray.file.startswith("*") else id_)  # fmt: skip
            change = new_change_id()
            value: dict[str, Any] = {"file": place.file, "id": place.key, "change": change}
            value |= _text_fields(raw, None, author, PERSON) | {
                "from": stray.key if stray.folder == place.folder else ""
            }
            value |= {"state": logged.state, "was": {}} if logged.state else {}
            if (picture := PictureRecord.of(self.items[id_].picture)) is not None:
                value["picture"] = [picture.size, picture.time_ns, picture.content, picture.place]
            log = self._logs[place.folder]
            with log.locked():
                log.append([head_line(change, MOVE, PERSON), json.dumps(value) + "\n"])
            self.layout.move(stray, id_)


def _text(raw: str) -> str:
    return raw.strip("\r\n").encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _without_empty(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if value not in (None, False, "", [], (), {})}


def _hash(raw: str | None) -> str | None:
    return None if raw is None else text_hash(raw)


def _text_fields(raw: str | None, before: str | None, author: Author, writer: Author) -> dict[str, Any]:
    """Returns the fields of a text's log line. ``author``: who wrote the text; ``writer``: who made the change."""
    value: dict[str, Any] = {} if before is None else {"before": before}
    if raw is None:
        return value | {"removed": True}
    if author.is_person:
        return value | {"person": text_hash(raw)}
    return value | {"text": text_hash(raw)} | ({"by": author.to_json()} if author != writer else {})
