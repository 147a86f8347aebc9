"""The layouts of a folder's captions: a text file next to each picture, a list of lines or rows, XMP, or Parquet.

A layout reads and writes raw texts by picture id. For a file next to a picture, the raw text is the whole file. For a
row in a list, it is the row's captions, one per line. Unchanged rows and fields are preserved byte for byte.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tellapart.captions.formats import METADATA, name_in, structured_text
from tellapart.data import xmp, xmp_files
from tellapart.data.caption_files import METADATA_FILES, read_caption_file
from tellapart.data.caption_matching import CaptionFile, KnownIds, match_captions
from tellapart.data.file_patterns import files_below
from tellapart.data.pictures import FilePicture
from tellapart.data.record_keys import GENERATED_KEYS, ID_KEYS, find_key, find_value, text_keys
from tellapart.data.records import picture_path
from tellapart.data.sidecars import sidecars
from tellapart.data.text_files import UTF16_MARKS, decode_text, plain_suffix
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.atomic_writes import replace_text, writable_file
from tellapart.utils.messages import say_once
from tellapart.utils.strict_json import json_text, parse_json
from tellapart.utils.urls import is_url
from tellapart.utils.write_errors import write_errors

BESIDE = (".txt", ".caption")
LISTS = ("captions.jsonl", "captions.csv", *METADATA_FILES)  # possible names of the list in a folder
WRITERS = 16  # threads
MIRRORED = (
    "accepted",
    "decorative",
    "language",
    "texts",
    "variation",
)  # fields of a row's state that .jsonl files also store


class TextPlace(NamedTuple):
    """Where a picture's text is logged: the log's folder, and the ``file`` and ``id`` within the log."""

    folder: Path
    file: str
    key: str


class CaptionLayout(ABC):
    """Base class for ways to store captions on disk. ``name`` is used in messages."""

    name: str
    writable = True
    shows_state = False  # whether rows also store the fields in `MIRRORED`

    @abstractmethod
    def place(self, id_: str) -> TextPlace:
        """Returns the location of this picture's text in the logs."""

    @abstractmethod
    def read(self, ids: Sequence[str]) -> dict[str, str]:
        """Reads the current raw texts of these pictures from disk; omits pictures without a text."""

    @abstractmethod
    def write(self, raws: Mapping[str, str | None], states: Mapping[str, Mapping[str, Any]]) -> None:
        """Writes raw texts (None removes a text), and the states that the layout stores."""

    def raw(self, id_: str, text: str) -> str:
        """Converts a caption, as written by a person or a model, to raw text."""
        return text

    def text(self, id_: str, raw: str) -> str:
        """Converts raw text to a caption."""
        return raw

    def state(self, id_: str) -> dict[str, Any]:
        """Returns the state (accepted, decorative, …) that the layout itself stores for a picture's text."""
        return {}

    def strays(self) -> dict[TextPlace, str]:
        """Returns the raw texts that do not belong to any picture in the folder, by location."""
        return {}

    def move(self, stray: TextPlace, id_: str) -> None:
        """Assigns a stray text to this picture without changing the text."""
        raise NotImplementedError

    def file_of(self, file: str) -> str:
        """Maps a ``file`` in the log to the corresponding ``file`` from `place`."""
        return file

    def parts(self, keys: Iterable[str]) -> list[CaptionLayout]:
        """Returns layouts for the pictures' additional texts, if the logs store them under these keys."""
        return []

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the files exclusively if another command may append to them."""
        yield


class Sidecars(CaptionLayout):
    """A text in a ``.txt``, ``.caption`` or ``.xmp`` file next to each picture.

    part: property and language of the text in an ``.xmp`` file. By default, the alt text that readers show: the default
        text or, if there is none, the text in the first language.
    """

    def __init__(
        self, suffixes: Sequence[str], files: Mapping[str, Path], part: tuple[str, str] = (xmp.ALT, xmp.DEFAULT)
    ) -> None:
        self.name = f"{suffixes[0]} files"
        self._suffixes, self._files, self._part = suffixes, dict(files), part

    @classmethod
    def find(cls, items: Sequence[Item], suffixes: Sequence[str]) -> Sidecars:
        """Finds the files next to the pictures. Raises `UsageError` if a picture is not a file."""
        by_folder: dict[Path, list[tuple[str, str]]] = {}
        for item in items:
            if not isinstance(item.picture, FilePicture):
                raise UsageError(
                    f"{item.picture.name} is not a file, so a {suffixes[0]} file cannot be written "
                    "beside it; pass a caption file, as the second argument of review or with --captions"
                )
            by_folder.setdefault(item.picture.path.parent, []).append((item.id, item.picture.path.name))
        files: dict[str, Path] = {}
        for folder, pictures in by_folder.items():
            texts = [
                entry.name for entry in os.scandir(folder) if posixpath.splitext(entry.name)[1].lower() in suffixes
            ]
            names = [name for _, name in pictures]
            beside = sidecars(names, texts, suffixes)
            stems = [posixpath.splitext(name)[0] for name in names]
            taken = {stem for stem in stems if stems.count(stem) > 1} if len(set(stems)) < len(stems) else set()
            for id_, name in pictures:
                stem = posixpath.splitext(name)[0]
                files[id_] = folder / beside.get(name, (name if stem in taken else stem) + suffixes[0])
        return cls(suffixes, files)

    @property
    def present(self) -> list[str]:
        """Returns the sorted suffixes of the files that exist, or an empty list if no picture has a text."""
        return sorted({path.suffix.lower() for path in self._files.values() if path.exists()})

    def place(self, id_: str) -> TextPlace:
        path = self._files[id_]
        key = xmp.key_of(*self._part)
        return TextPlace(path.parent, f"*{(path.suffix + key).lower()}", path.name + key)

    def file_of(self, file: str) -> str:
        return file.partition("#")[0] if self._is_shown and file.startswith("*.xmp#") else file

    def parts(self, keys: Iterable[str]) -> list[CaptionLayout]:
        marks = dict.fromkeys(key[key.lower().rindex(".xmp#") + len(".xmp") :] for key in keys)
        return [Sidecars(self._suffixes, self._files, xmp.part_of(mark)) for mark in marks]

    def read(self, ids: Sequence[str]) -> dict[str, str]:
        texts = {id_: self._read(self._files[id_]) for id_ in ids}
        return {id_: text for id_, text in texts.items() if text is not None}

    def _read(self, path: Path) -> str | None:
        try:
            if self._suffixes[0] != ".xmp":
                return path.read_bytes().decode("utf-8", "surrogateescape")
            packet = xmp_files.read_sidecar(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror}); make it readable") from None
        return self._text_in(packet, path)

    def _text_in(self, packet: str, path: Path) -> str | None:
        if self._is_shown:
            return xmp.texts_of(packet, str(path)).get(xmp.ALT)
        return xmp.languages_of(packet, str(path)).get(self._part)

    @property
    def _is_shown(self) -> bool:
        """Returns whether the text is the alt text that readers show."""
        return self._part == (xmp.ALT, xmp.DEFAULT)

    def raw(self, id_: str, text: str) -> str:
        return text if self._suffixes[0] == ".xmp" or not text else text + "\n"

    def text(self, id_: str, raw: str) -> str:
        data = raw.encode("utf-8", "surrogateescape")
        with contextlib.suppress(UnicodeDecodeError):  # undecodable text has another encoding
            return raw if self._suffixes[0] == ".xmp" else decode_text(data)
        return raw

    def write(self, raws: Mapping[str, str | None], states: Mapping[str, Mapping[str, Any]]) -> None:
        with ThreadPoolExecutor(WRITERS) as pool:  # threads, because renaming a file over another waits for the disk
            for _ in pool.map(lambda one: self._write(self._files[one[0]], one[1]), raws.items()):
                pass

    def _write(self, path: Path, raw: str | None) -> None:
        with write_errors(path, "make the folder writable", "free some disk space and save again"):
            if self._suffixes[0] == ".xmp":
                packet = xmp_files.read_sidecar(path)
                if packet or raw:
                    same = list[tuple[str, str]]()
                    if self._is_shown:
                        shown, texts = self._text_in(packet, path), xmp.languages_of(packet, str(path))
                        same = [key for key, text in texts.items() if key[0] == xmp.ALT and text == shown]
                    new = dict.fromkeys([*same, self._part], raw)
                    replace_text(path, xmp.with_languages(packet, new, str(path)))
            elif raw is None:
                path.unlink(missing_ok=True)
            else:
                replace_text(path, raw, errors="surrogateescape", sync=False)

    def strays(self) -> dict[TextPlace, str]:
        used, found = set(self._files.values()), dict[TextPlace, str]()
        for folder in {path.parent for path in used}:
            for suffix in self._suffixes:
                for path in sorted(set(folder.glob(f"*{suffix}")) - used):
                    if (raw := self._read(path)) is not None:
                        found[TextPlace(folder, f"*{suffix}", path.name)] = raw
        return found

    def move(self, stray: TextPlace, id_: str) -> None:
        target, source = self._files[id_], stray.folder / stray.key
        with write_errors(source, "make the folder writable"):
            source.rename(target.with_suffix(source.suffix))
        self._files[id_] = target.with_suffix(source.suffix)


@dataclass
class ListRow:
    """One row in a list.

    line: the raw line.
    record: the fields of the row.
    key: the id.
    field: name of the field that contains the text.
    """

    line: str
    record: dict[str, Any]
    key: str = ""
    file: str = ""
    field: str = ""

    @property
    def raw(self) -> str | None:
        """Returns the captions, one per line, or a structured caption as JSON; None if the value is not text."""
        if (whole := structured_text(self.record)) is not None:
            return whole
        value = self.record.get(self.field)
        texts: list[Any] = value if isinstance(value, list) else [value]
        return "\n".join(texts) if all(isinstance(text, str) for text in texts) else None


class ListFile(CaptionLayout):
    """A list with one row per picture: JSON lines, or a table (CSV or TSV) with a header."""

    def __init__(self, path: Path, items: Sequence[Item]) -> None:
        self.path, self.name = path, path.name
        self._items = {item.id: item for item in items}
        self._table = plain_suffix(path) in (".csv", ".tsv")
        self.shows_state = not self._table and path.name != METADATA
        self._signature: tuple[int, ...] | None = None
        self._header: list[str] = []
        self._head, self._separator = "", ","
        self._rows: list[ListRow] = []
        self._by_id: dict[str, list[ListRow]] = {}

    def place(self, id_: str) -> TextPlace:
        rows = self._by_id.get(id_)
        return TextPlace(self.path.parent, self.path.name, rows[0].key if rows else id_)

    def read(self, ids: Sequence[str]) -> dict[str, str]:
        self._refresh()
        raws = {id_: [row.raw for row in self._by_id[id_]] for id_ in ids if id_ in self._by_id}
        return {id_: "\n".join(raw or "" for raw in own) for id_, own in raws.items()}

    def raw(self, id_: str, text: str) -> str:
        rows = self._by_id.get(id_, ())
        value = rows[0].record.get("structured") if rows else None
        return json_text({**value, "caption": text}) if isinstance(value, dict) and "caption" in value else text

    def text(self, id_: str, raw: str) -> str:
        rows = self._by_id.get(id_, ())
        if not rows or "structured" not in rows[0].record:
            return raw
        try:
            value = parse_json(raw)
        except ValueError:
            return raw
        caption = value.get("caption") if isinstance(value, dict) else None
        return caption if isinstance(caption, str) else raw

    def state(self, id_: str) -> dict[str, Any]:
        record = self._by_id[id_][0].record if id_ in self._by_id else {}
        state = {name: record[name] for name in MIRRORED if record.get(name)}
        scored = record.get("candidates")
        if isinstance(scored, list) and all(isinstance(one, Mapping) and "caption" in one for one in scored):
            state["candidates"] = [str(one["caption"]) for one in scored]
        return state

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._signature, self._rows, self._by_id = None, [], {}
            return
        if self._signature == (status.st_ino, status.st_size, status.st_mtime_ns):
            return
        data = self.path.read_bytes()
        if data.startswith(UTF16_MARKS):
            raise UsageError(f"{self.path} is in UTF-16, but only UTF-8 files can be edited; save it as UTF-8")
        text = data.decode("utf-8-sig", "surrogateescape")
        self._rows = self._table_rows(text) if self._table else self._json_rows(text)
        self._signature = status.st_ino, status.st_size, status.st_mtime_ns
        self._match()

    def _sign(self) -> tuple[int, ...]:
        status = self.path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _json_rows(self, text: str) -> list[ListRow]:
        rows = []
        for number, line in enumerate(text.splitlines(keepends=True) if "\n" in text else [text], 1):
            if not line.strip():
                continue
            try:
                record = parse_json(line)
                if not isinstance(record, dict):
                    raise ValueError(f"a {type(record).__name__}, expected an object")
            except ValueError as error:
                raise UsageError(
                    f"{self.path}, line {number}: not a caption ({error}); fix or remove the line"
                ) from None
            rows.append(self._row(line if line.endswith("\n") else line + "\n", record))
        return rows

    def _table_rows(self, text: str) -> list[ListRow]:
        lines = text.splitlines(keepends=True)
        first = lines[0] if lines else ""
        self._separator = "\t" if plain_suffix(self.path) == ".tsv" else max(",;\t", key=first.count)
        if lines:
            self._header, self._head = [], ""  # another process may have changed the columns
        reader, start, rows = csv.reader(lines, delimiter=self._separator), 0, list[ListRow]()
        try:
            for cells in reader:
                line, start = "".join(lines[start : reader.line_num]), reader.line_num
                if not rows and not self._header_of(cells, line):
                    continue
                if any(cells[len(self._header) :]):
                    raise UsageError(
                        f"{self.path}, line {reader.line_num}: more fields than in the header; put captions containing "
                        f"'{self._separator}' in double quotes"
                    )
                if any(cells):
                    line = line if line.endswith("\n") else line + "\n"
                    rows.append(self._row(line, dict(zip(self._header, cells, strict=False))))
        except csv.Error as error:
            raise UsageError(f"{self.path}, line {reader.line_num}: {error}; fix the line") from None
        return rows

    def _header_of(self, cells: list[str], line: str) -> bool:
        """Stores the line if it is the header. Returns whether the line is a row instead."""
        if self._header and self._head != line:
            return True
        has_key = find_key(ID_KEYS, cells) or picture_path(dict.fromkeys(cells, "a.jpg"))
        if double := next((cell for cell in cells if cell and cells.count(cell) > 1), ""):
            raise UsageError(
                f"{self.path}: {cells.count(double)} columns are named '{double}'; rename or remove all but one"
            )
        if not (has_key and text_keys(GENERATED_KEYS, cells)):
            raise UsageError(
                f"{self.path}: expected the columns 'id' (or image, file_name, …) and 'caption' (or "
                f"text, …), got the header '{','.join(cells)}'"
            )
        self._header, self._head = cells, line
        return False

    def _row(self, line: str, record: dict[str, Any]) -> ListRow:
        file = picture_path(record)
        key = str(find_value(ID_KEYS, record) or file)
        fields = text_keys(GENERATED_KEYS, record)
        return ListRow(line, record, key, file, fields[0] if fields else "caption")

    def _match(self) -> None:
        """Matches rows to pictures in the same way as ``tellapart eval``."""
        known = KnownIds("the pictures", list(self._items), {id_: one.picture.name for id_, one in self._items.items()})
        by_key: dict[str, list[ListRow]] = {}
        for row in self._rows:
            by_key.setdefault(row.key, []).append(row)
        files = {key: rows[0].file for key, rows in by_key.items() if rows[0].file}
        given = CaptionFile(str(self.path), {key: [key] for key in by_key}, files)
        matched = match_captions(given, known, str(self.path)).texts if by_key else {}
        self._by_id = {
            id_: [row for key in keys for row in by_key[key]] for id_, keys in matched.items() if id_ in self._items
        }

    def write(self, raws: Mapping[str, str | None], states: Mapping[str, Mapping[str, Any]]) -> None:
        changed = dict.fromkeys([*raws, *(states if self.shows_state else ())])
        if not changed:
            return
        self._change({id_: raws.get(id_, now) for id_, now in self._raws(changed).items()}, states)
        if self._table and not self._head:
            self._head = self._header_line()
        text = self._head + "".join(row.line for row in self._rows)
        with write_errors(self.path, "make the folder writable", "free some disk space and save again"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(self.path, text, errors="surrogateescape")
        size = len(text.encode("utf-8", "surrogateescape"))
        self._signature = self._sign() if self.path.stat().st_size == size else None  # another process appended

    def _header_line(self) -> str:
        self._header = ["file_name", "text"] if self.path.name in METADATA_FILES else ["id", "caption"]
        return self._csv_line(self._header)

    def _raws(self, ids: Iterable[str]) -> dict[str, str | None]:
        """Returns the raw text of each picture, or None if the picture has no row."""
        known = {id_: self._by_id.get(id_) for id_ in ids}
        return {id_: "\n".join(row.raw or "" for row in rows) if rows else None for id_, rows in known.items()}

    def _change(self, raws: Mapping[str, str | None], states: Mapping[str, Mapping[str, Any]]) -> None:
        """Replaces pictures' rows in place, and appends rows for pictures that had none."""
        instead: dict[int, list[ListRow]] = {}  # maps the `id` of a row to the rows that replace it
        for id_, raw in raws.items():
            before = self._by_id.pop(id_, [])
            new = [] if raw is None else self._new_rows(id_, raw, before, states.get(id_))
            if new:
                self._by_id[id_] = new
            instead |= {id(row): [] for row in before}
            if before:
                instead[id(before[0])] = new
            else:
                self._rows += new
        self._rows = [one for row in self._rows for one in instead.get(id(row), [row])]

    def _new_rows(self, id_: str, raw: str, before: list[ListRow], state: Mapping[str, Any] | None) -> list[ListRow]:
        """Returns a picture's new rows.

        There is one row per caption if the picture had several rows or is new in a table, otherwise a single row.
        """
        template = before or [self._blank(id_)]
        texts = raw.split("\n")
        if len(before) > 1 or (self._table and not before):
            return [self._with_text(template[min(n, len(template) - 1)], text) for n, text in enumerate(texts)]
        row = template[0]
        if isinstance(row.record.get(row.field), list) or (len(texts) > 1 and not before and not self._table):
            return [self._with_text(row, texts, state)]
        return [self._with_text(row, raw, state)]

    def _with_text(self, row: ListRow, value: Any, state: Mapping[str, Any] | None = None) -> ListRow:
        if row.raw is None and row.field in row.record:
            raise UsageError(f"{self.path}: the text of '{row.key}' is not plain text; edit the file directly")
        name = "captions" if isinstance(value, list) and row.field == "caption" and not row.line else row.field
        record = {**row.record, name: value} if row.raw != value or name not in row.record else dict(row.record)
        if name != row.field:
            del record[row.field]
        if row.raw != (value if isinstance(value, str) else "\n".join(value)):
            record.pop("claims", None)  # the claims describe the previous text
        if isinstance(row.record.get("structured"), dict):
            record = self._with_structured(row, value)
        if state is not None:
            record = {key: one for key, one in record.items() if key not in MIRRORED}
            record |= {key: state[key] for key in MIRRORED if state.get(key)}
            if not state.get("candidates"):  # the stored candidates belong to the previous text
                record = {key: one for key, one in record.items() if key not in ("candidates", "score")}
        if self._table:
            header = self._header or list(record)
            line = self._csv_line([str(record.get(cell, "")) for cell in header])
        else:
            line = json.dumps(record, ensure_ascii=False) + "\n"
        return ListRow(line, record, row.key, row.file, name)

    def _with_structured(self, row: ListRow, raw: Any) -> dict[str, Any]:
        """Replaces a row's structured caption. Raises `UsageError` if the new caption is not a JSON object."""
        try:
            value = parse_json(raw)
        except (TypeError, ValueError):
            value = None
        if not isinstance(value, dict):
            raise UsageError(
                f"{self.path}: the caption of '{row.key}' is a JSON object; it can only be edited as a JSON object"
            )
        return {**row.record, **({"caption": value["caption"]} if "caption" in value else {}), "structured": value}

    def _blank(self, id_: str) -> ListRow:
        """Returns an empty row for a picture, with the same fields as the other rows."""
        if self._table and not self._head:
            self._head = self._header_line()
        item = self._items[id_]
        listed = self.path.name in METADATA_FILES
        pattern = dict.fromkeys(self._header, "") if self._table else self._rows[0].record if self._rows else {}
        named = find_key(ID_KEYS, pattern) or next((key for key in pattern if picture_path({key: "a.jpg"})), "")
        texts = text_keys(GENERATED_KEYS, pattern)
        field = texts[0] if texts else ("text" if listed else "caption")
        key = name_in(item, self.path.parent) if listed else id_
        blank = pattern if self._table else {}
        return ListRow("", {**blank, named or ("file_name" if listed else "id"): key, field: ""}, key, "", field)

    def _csv_line(self, cells: Sequence[str]) -> str:
        text = io.StringIO()
        csv.writer(text, delimiter=self._separator, lineterminator="\n").writerow(cells)
        return text.getvalue()

    def strays(self) -> dict[TextPlace, str]:
        self._refresh()
        used = {id(row) for rows in self._by_id.values() for row in rows}
        return {TextPlace(self.path.parent, self.path.name, row.key): row.raw or ""
                for row in self._rows if id(row) not in used}  # fmt: skip

    def move(self, stray: TextPlace, id_: str) -> None:
        rows = [row for row in self._rows if row.key == stray.key]
        for row in rows:
            name = find_key(ID_KEYS, row.record) or next(key for key in row.record if picture_path({key: "a.jpg"}))
            key = name_in(self._items[id_], self.path.parent) if self.path.name in METADATA_FILES else id_
            row.record = {**row.record, name: key}
            row.key = key
        self._by_id[id_] = rows
        self.write(self._raws([id_]), {})

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the file. Raises `UsageError` if ``tellapart caption`` is appending to it."""
        if not self.path.exists():
            yield
            return
        with writable_file(self.path).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(
                    f"{self.path}: another process is writing to this file; save again when it has finished"
                ) from None
            yield


class ReadOnly(CaptionLayout):
    """Captions in a read-only layout: Parquet, JSON, Excel."""

    writable = False

    def __init__(self, path: Path, texts: Mapping[str, str]) -> None:
        self.path, self.name, self._texts = path, path.name, texts

    @classmethod
    def open(cls, path: Path, items: Sequence[Item]) -> ReadOnly:
        """Reads the file. Raises `UsageError` if it cannot be read."""
        known = KnownIds("the pictures", [item.id for item in items], {item.id: item.picture.name for item in items})
        texts = match_captions(read_caption_file(path), known, str(path)).texts
        return cls(path, {id_: "\n".join(each) for id_, each in texts.items()})

    def place(self, id_: str) -> TextPlace:
        return TextPlace(self.path.parent, self.path.name, id_)

    def read(self, ids: Sequence[str]) -> dict[str, str]:
        return {id_: self._texts[id_] for id_ in ids if id_ in self._texts}

    def write(self, raws: Mapping[str, str | None], states: Mapping[str, Mapping[str, Any]]) -> None:
        raise UsageError(f"{self.path} is read-only; convert it to .jsonl or .csv to change captions")


def open_layout(items: Sequence[Item], folder: Path | None, captions: Path | None) -> CaptionLayout:
    """Opens these pictures' captions in whichever layout they are stored.

    Args:
        folder: the folder to search for lists if ``captions`` is None.
        captions: a file, or a suffix such as ``.txt`` for files next to the pictures; None detects the layout.

    Files next to the pictures take precedence over a list in the folder. Raises `UsageError` if there are several lists
    or the kind of file is unknown.
    """
    if captions is not None and str(captions).lower() in (*BESIDE, ".xmp"):
        suffix = str(captions).lower()
        return Sidecars.find(items, (suffix,))
    if captions is not None:
        if is_url(str(captions)) or captions.is_dir():
            raise UsageError(f"{captions}: expected a local file of captions, such as captions.jsonl")
        if plain_suffix(captions) in (".jsonl", ".ndjson", ".csv", ".tsv") and captions.suffix.lower() != ".gz":
            return ListFile(captions, items)
        if not captions.exists():
            raise UsageError(
                f"{captions}: no such file; expected a .jsonl or .csv file, or .txt for a text file beside each picture"
            )
        return ReadOnly.open(captions, items)
    lists = [path for name in LISTS for path in (files_below(folder, name) if folder is not None else ())]
    beside = Sidecars.find(items, BESIDE) if all(isinstance(item.picture, FilePicture) for item in items) else None
    if beside is not None and (not lists or beside.present):
        if lists:
            say_once(
                f"{folder}: using the {' and '.join(beside.present)} files beside the pictures, and ignoring "
                f"{', '.join(map(str, lists))}; to use a list instead, pass it after the folder (review) or with "
                "--captions (captions)"
            )
        return beside
    if len(lists) > 1:
        names = ", ".join(map(str, lists))
        raise UsageError(f"{folder} contains several caption files; specify one of them: {names}")
    if lists:
        return open_layout(items, folder, lists[0])
    raise UsageError("specify a caption file after the pictures, such as captions.jsonl")
