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
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tellapart.captions.authors import PERSON, Author
from tellapart.captions.journal import Journal, JournalChange, RowChange, new_change
from tellapart.captions.layout import CaptionLayout, TextPlace
from tellapart.captions.layouts import open_layout
from tellapart.captions.log_row import LogRow, state_of_new_text
from tellapart.captions.picture_matching import renamed_ids
from tellapart.captions.picture_record import PictureRecord
from tellapart.captions.text_hash import text_hash
from tellapart.data.dataset import Dataset
from tellapart.data.open import open_many
from tellapart.data.pictures import StoredPicture
from tellapart.data.specification import parse
from tellapart.errors import PictureError, UsageError
from tellapart.types import Item
from tellapart.utils.file_lock import allow_locks

TextAndState = tuple[str | None, dict[str, Any]]  # a row's raw text (None: no text), and its state
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
            self._refresh(self._folders(chosen))
            return {id_: self._caption(id_, raws.get(id_)) for id_ in chosen}

    def caption(self, id_: str) -> StoredCaption:
        """Reads the current caption of one picture from disk."""
        return self.captions([id_])[id_]

    def _caption(self, id_: str, raw: str | None) -> StoredCaption:
        place, state = self.layout.place(id_), self._state(id_, raw)
        author = None
        if raw is not None and (raw.strip() or self._row(place).hashes):
            author = self._logs[place.folder].author(place.file, place.key, raw)
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
        text = "" if raw is None else self.layout.text(id_, raw)
        return text.strip("\r\n").encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def _state(self, id_: str, raw: str | None) -> dict[str, Any]:
        return {**self._row(self.layout.place(id_)).state_of(raw), **self.layout.state(id_)}

    def _row(self, place: TextPlace) -> LogRow:
        return self._logs[place.folder].rows[place.file].get(place.key) or LogRow()

    def _refresh(self, folders: Iterable[Path]) -> None:
        for folder in set(folders):
            if folder in self._logs:
                self._logs[folder].refresh()
            else:
                self._logs[folder] = Journal.open(folder)

    def _folders(self, ids: Iterable[str]) -> set[Path]:
        """Returns the folders of these pictures' logs."""
        return {self.layout.place(id_).folder for id_ in ids}

    # Writing.

    def write(
        self,
        edits: Mapping[str, Edit],
        what: str,
        author: Author = PERSON,
        *,
        versions: Mapping[str, str] | None = None,
        replace_edited: bool = False,
        change: JournalChange | None = None,
    ) -> WriteResult:
        """Writes texts and states as a single change in the journal.

        Args:
            what: the kind of change for the history, such as ``edit`` or ``lora``.
            author: the author of the texts. A model does not replace texts that a person wrote or accepted, unless
                ``replace_edited`` is set. The journal keeps every replaced text.
            versions: the `StoredCaption.version` of each row that the caller last saw. A row that has changed since is
                left unchanged and returned as a conflict.
            change: the change that the edits belong to; None starts a new change.

        Raises `UsageError` if the layout is read-only or another process is writing the file; `TellapartError` if the
        disk is full or the files cannot be written.
        """
        with self._locked(edits):
            raws = self.layout.read(list(edits))
            new: dict[str, TextAndState] = {}
            stayed, replaced, conflicts = list[str](), list[str](), list[str]()
            for id_, edit in edits.items():
                now, before = self._caption(id_, raws.get(id_)), (raws.get(id_), self._state(id_, raws.get(id_)))
                after = self._edited(id_, edit, before, author)
                persons = not author.is_person and now.is_persons
                if versions is not None and versions.get(id_) != now.version:
                    conflicts.append(id_)
                elif before != after and persons and not replace_edited:
                    stayed.append(id_)
                elif before != after:
                    replaced += [id_] if persons else []
                    new[id_] = after
            authors = {id_: author for id_, (raw, _) in new.items() if raw != raws.get(id_)}
            written = self._commit(change or new_change(what, author), new, raws, authors)
            return WriteResult(written, tuple(new), tuple(stayed), tuple(replaced), tuple(conflicts))

    def _edited(self, id_: str, edit: Edit, before: TextAndState, author: Author) -> TextAndState:
        raw, state = before
        changed = edit.text is not None and edit.text != self._text(id_, raw)
        if changed and edit.text is not None:
            raw = self.layout.raw(id_, edit.text)
        if raw is None and edit.state.get("decorative") and self.layout.shows_state:
            raw = ""  # the state can only be stored in a row
        if changed and not author.is_person:  # the rest of the state describes the previous text
            state = state_of_new_text(state)
        if changed or edit.state.get("accepted"):
            state = {name: value for name, value in state.items() if name != "doubts"}
        added = json.loads(json.dumps(dict(edit.state)))  # the form on disk, so that an equal state compares equal
        return raw, _without_empty({**state, **added})

    def _commit(
        self,
        change: JournalChange,
        new: Mapping[str, TextAndState],
        raws: Mapping[str, str],
        authors: Mapping[str, Author],
    ) -> str | None:
        """Writes the journal, then the files. ``authors``: the authors of the changed texts."""
        if not new:
            return None
        lines: dict[Path, list[dict[str, Any]]] = defaultdict(list)
        for id_, (raw, state) in new.items():
            place, before = self.layout.place(id_), self._state(id_, raws.get(id_))
            value: dict[str, Any] = {"file": place.file, "id": place.key, "change": change.id}
            if id_ in authors:
                value |= _text_fields(raw, raws.get(id_), authors[id_], change.author)
            row = self._row(place)
            if state != before or row.state_of(raws.get(id_)) != row.state:
                value |= {"state": state, "was": before}
            picture = self._picture(id_)
            if picture is not None and picture != row.picture:
                value["picture"] = picture
            lines[place.folder].append(value)
        for folder, some in lines.items():
            self._logs[folder].append(some, change)
        texts = {id_: raw for id_, (raw, _) in new.items() if id_ in authors}
        self.layout.write(texts, {id_: state for id_, (_, state) in new.items()})
        return change.id

    def _picture(self, id_: str) -> PictureRecord | None:
        """Returns the picture's record. Does not read the file if it has not changed since it was last recorded."""
        picture, known = self.items[id_].picture, self._row(self.layout.place(id_)).picture
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
            folders = sorted(self._folders(ids))
            self._refresh(folders)
            allow_locks(len(folders), "the captions")
            for folder in folders:
                stack.enter_context(self._logs[folder].locked())
            yield

    # History.

    def changes(self) -> list[JournalChange]:
        """Returns all changes to these captions, oldest first. A change to several folders is listed only once."""
        with self._lock:
            self._refresh(self._folders(self.items))
            files = {(place.folder, place.file) for place in map(self.layout.place, self.items)}
            changes = {
                change.id: change
                for log in self._logs.values()
                for change in log.changes.values()
                if any((log.path.parent, self.layout.file_of(file)) in files for file, _ in change.rows)
            }
            return [changes[id_] for id_ in sorted(changes)]

    def size(self, change: str) -> int:
        """Returns the number of captions that a change affects."""
        changes = [log.changes[change] for log in self._logs.values() if change in log.changes]
        return sum(row.text or row.state is not None for part in changes for row in part.rows.values())

    def _changes_of(self, place: TextPlace) -> Iterator[tuple[JournalChange, RowChange]]:
        """Yields the changes to one row, newest first, including those before its picture was renamed."""
        key = (place.file, place.key)
        for change in reversed(self._logs[place.folder].changes.values()):
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
            self._refresh(self._folders([id_]))
            versions = list[Version]()
            for change, row in self._changes_of(self.layout.place(id_)):
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
        if self._are_latest(chosen) and all(result.change is None for result in results):
            self._record_undo(new_change("undo", PERSON, sorted(chosen)))
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
            new: dict[str, TextAndState] = {}
            stayed, authors = list[str](), dict[str, Author]()
            for id_ in rows:
                place, before = self.layout.place(id_), (raws.get(id_), self._state(id_, raws.get(id_)))
                raw, state = before
                for change, row in self._changes_of(place):
                    if change.id not in chosen or row.source is not None:
                        continue
                    if row.text and row.after == _hash(raw):
                        raw = row.before
                    elif row.text and row.before != raw:
                        stayed.append(id_)
                        break
                    if row.state is not None:
                        changed = [name for name in {*row.state, *row.was} if state.get(name) == row.state.get(name)]
                        state = state | {name: row.was.get(name) for name in changed}
                state = _without_empty(state)
                if (raw, state) == before:
                    continue
                new[id_] = raw, state
                if raw != before[0]:
                    known = self._logs[place.folder].authors
                    authors[id_] = known.get((place.file, place.key, text_hash(raw or "")), PERSON)
            written = self._commit(new_change("undo", PERSON, sorted(chosen)), new, raws, authors)
            return WriteResult(written, tuple(new), tuple(dict.fromkeys(stayed)))

    def _are_latest(self, chosen: Collection[str]) -> bool:
        """Returns whether the next undo would choose the same changes, not counting those that they undo themselves."""
        changes = [change for change in self.active() if change.what != MOVE]
        ids = [change.id for change in changes
               if change.id in chosen and not (change.undoes and set(change.undoes) <= set(chosen))]  # fmt: skip
        latest = [change.id for change in changes if not change.undoes or change.id in ids]
        return bool(ids) and latest[-len(ids) :] == ids

    def _record_undo(self, undo: JournalChange) -> None:
        """Records an undo that restored nothing, because otherwise the next undo would choose the same change again."""
        with self._lock:
            files = {(place.folder, place.file) for place in map(self.layout.place, self.items)}
            for log in self._logs.values():
                rows = [row for id_ in undo.undoes if id_ in log.changes for row in log.changes[id_].rows]
                row = next((row for row in rows if (log.path.parent, self.layout.file_of(row[0])) in files), None)
                if row is not None:
                    with log.locked():
                        log.append([{"file": row[0], "id": row[1], "change": undo.id}], undo)

    # Renamed pictures.

    def remember(self) -> int:
        """Records the content of pictures whose text is not in the log yet. Returns the number of these pictures.

        If such a picture is later renamed or moved, `follow` can move its text along.
        """
        if not self.layout.writable:
            return 0
        with self._lock:
            raws = self.layout.read(list(self.items))
            self._refresh(self._folders(raws))
            places = {id_: place for id_ in raws if self._row(place := self.layout.place(id_)).picture is None}
        records: dict[Path, list[dict[str, Any]]] = defaultdict(list)
        for id_, place in places.items():
            if (record := PictureRecord.of(self.items[id_].picture)) is not None:
                records[place.folder].append({"file": place.file, "id": place.key, "picture": record})
        with self._lock:
            for folder, values in records.items():
                with self._logs[folder].locked():
                    self._logs[folder].append(values)
        return sum(map(len, records.values()))

    def follow(self) -> list[str]:
        """Moves texts along with their renamed or moved pictures, and returns the ids of these pictures.

        Raises the same errors as `write`.
        """
        if not self.layout.writable:
            return []
        with self._lock:
            raws = self.layout.read(list(self.items))
            strays = self.layout.strays()
            bare = [item for id_, item in self.items.items() if id_ not in raws]
            self._refresh({*self._folders(self.items), *(place.folder for place in strays)})
            moved = renamed_ids(bare, {place: self._row(place) for place in strays})
            for stray, id_ in moved.items():
                self._move(stray, id_, strays[stray])
            return list(moved.values())

    def _move(self, stray: TextPlace, id_: str, raw: str) -> None:
        """Moves a text to a picture, along with its author and state."""
        author = self._logs[stray.folder].author(stray.file, stray.key, raw)
        state = self._row(stray).state_of(raw)
        with self.layout.locked():
            place = self.layout.place(id_)
            beside = stray.file.startswith("*")
            key = Path(place.key).with_suffix(Path(stray.key).suffix).name if beside else id_
            change, log = new_change(MOVE, PERSON), self._logs[place.folder]
            value: dict[str, Any] = {"file": stray.file, "id": key, "change": change.id}
            value |= _text_fields(raw, None, author, PERSON)
            value["from"] = stray.key if stray.folder == place.folder else ""
            value |= {"state": state, "was": {}} if state else {}
            if (picture := PictureRecord.of(self.items[id_].picture)) is not None:
                value["picture"] = picture
            with log.locked():
                log.append([value], change)
            self.layout.move(stray, id_)


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
