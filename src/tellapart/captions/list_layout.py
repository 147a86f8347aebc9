"""The layout with a list of all pictures' captions: JSON lines, or a table (CSV or TSV) with a header."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tellapart.captions.formats import METADATA, name_in, structured_text
from tellapart.captions.layout import CaptionLayout, TextPlace
from tellapart.captions.marks import MARKS, marks_in
from tellapart.data.caption_file import CaptionFile
from tellapart.data.caption_files import METADATA_FILES
from tellapart.data.caption_matching import KnownIds, match_captions
from tellapart.data.csv_text import separator_of
from tellapart.data.record_keys import GENERATED_KEYS, ID_KEYS, find_key, find_value, text_keys
from tellapart.data.records import picture_path
from tellapart.data.text_files import UTF16_MARKS, plain_suffix
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.atomic_writes import replace_text, writable_file
from tellapart.utils.strict_json import json_text, parse_json
from tellapart.utils.write_errors import write_errors

# Fields of a row's state that .jsonl files also store.
MIRRORED = ("accepted", "decorative", "language", "texts", "variation")
TABLE_STATE = ("language", "accepted", "decorative")  # columns of a table that store state


@dataclass(eq=False)
class ListRow:
    """One row in a list.

    line: the raw line; "" for a new row.
    record: the fields of the row.
    key: the id.
    field: name of the field that contains the text.
    file: the picture's file, if the row names one.
    """

    line: str
    record: dict[str, Any]
    key: str
    field: str
    file: str = ""

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
        self._mirrored = TABLE_STATE if self._table else MIRRORED
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
        return {id_: raw for id_ in ids if (raw := self._raw(id_)) is not None}

    def _raw(self, id_: str) -> str | None:
        """Returns the raw text of a picture, or None if the picture has no row."""
        rows = self._by_id.get(id_)
        return "\n".join(row.raw or "" for row in rows) if rows else None

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
        rows = self._by_id.get(id_, ())
        record = rows[0].record if rows else {}
        state: dict[str, Any] = {name: record[name] for name in self._mirrored if record.get(name)}
        if self._table:  # cells are strings
            marks = [mark for row in rows for mark in marks_in(row.record, str(self.path))]
            return {name: value for name, value in state.items() if name not in MARKS} | dict.fromkeys(marks, True)
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
        if self._signature == (signature := _signature_of(status)):
            return
        data = self.path.read_bytes()
        if data.startswith(UTF16_MARKS):
            raise UsageError(f"{self.path} is in UTF-16, but only UTF-8 files can be edited; save it as UTF-8")
        text = data.decode("utf-8-sig", "surrogateescape")
        self._rows = self._table_rows(text) if self._table else self._json_rows(text)
        self._signature = signature
        self._match()

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
        self._separator = separator_of(first, self.path)
        reader, start, rows = csv.reader(lines, delimiter=self._separator), 0, list[ListRow]()
        try:
            self._set_header(next(reader, []), "".join(lines[: reader.line_num]))
            start = reader.line_num
            for cells in reader:
                line, start = "".join(lines[start : reader.line_num]), reader.line_num
                if any(cells[len(self._header) :]):
                    raise UsageError(
                        f"{self.path}, line {reader.line_num}: more fields than in the header; put captions containing "
                        f"'{self._separator}' in double quotes"
                    )
                if any(cells):
                    line = line if line.endswith("\n") else line + "\n"
                    record = dict(zip(self._header, cells, strict=False))
                    marks_in(record, f"{self.path}, line {reader.line_num}")
                    rows.append(self._row(line, record))
        except csv.Error as error:
            raise UsageError(f"{self.path}, line {reader.line_num}: {error}; fix the line") from None
        return rows

    def _set_header(self, cells: list[str], line: str) -> None:
        if double := next((cell for cell in cells if cell and cells.count(cell) > 1), ""):
            raise UsageError(
                f"{self.path}: {cells.count(double)} columns are named '{double}'; rename or remove all but one"
            )
        has_key = find_key(ID_KEYS, cells) or picture_path(dict.fromkeys(cells, "a.jpg"))
        if line and not (has_key and text_keys(GENERATED_KEYS, cells)):
            raise UsageError(
                f"{self.path}: expected the columns 'id' (or image, file_name, …) and 'caption' (or "
                f"text, …), got the header '{','.join(cells)}'"
            )
        self.shows_state = any(name in cells for name in TABLE_STATE)
        self._header, self._head = cells, line if line.endswith("\n") or not line else line + "\n"

    def _row(self, line: str, record: dict[str, Any]) -> ListRow:
        file = picture_path(record)
        key = str(find_value(ID_KEYS, record) or file)
        fields = text_keys(GENERATED_KEYS, record)
        return ListRow(line, record, key, fields[0] if fields else "caption", file)

    def _match(self) -> None:
        """Matches rows to pictures in the same way as ``tellapart eval``."""
        known = KnownIds.of("the pictures", self._items.values())
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
        changed = {id_: raws[id_] if id_ in raws else self._raw(id_)
                   for id_ in ({**raws, **states} if self.shows_state else raws)}  # fmt: skip
        if not changed:
            return
        if self._table and not self._head:
            self._header = ["file_name", "text"] if self.path.name in METADATA_FILES else ["id", "caption"]
            self._head = self._csv_line(self._header)
        instead: dict[ListRow, Sequence[ListRow]] = {}  # the rows that replace a row
        for id_, raw in changed.items():
            before = self._by_id.pop(id_, [])
            new = [] if raw is None else self._new_rows(id_, raw, before, states.get(id_))
            if new:
                self._by_id[id_] = new
            instead |= dict.fromkeys(before, ())
            if before:
                instead[before[0]] = new
            else:
                self._rows += new
        self._rows = [one for row in self._rows for one in instead.get(row, (row,))]
        text = self._head + "".join(row.line for row in self._rows)
        with write_errors(self.path, "make the folder writable", "free some disk space and save again"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(self.path, text, errors="surrogateescape")
        size = len(text.encode("utf-8", "surrogateescape"))
        status = self.path.stat()
        self._signature = _signature_of(status) if status.st_size == size else None  # another process appended

    def _new_rows(self, id_: str, raw: str, before: list[ListRow], state: Mapping[str, Any] | None) -> list[ListRow]:
        """Returns a picture's new rows.

        There is one row per caption if the picture had several rows or is new in a table, otherwise a single row.
        """
        template = before or [self._blank(id_)]
        texts = raw.split("\n")
        if len(before) > 1 or (self._table and not before):
            rows = [template[min(n, len(template) - 1)] for n in range(len(texts))]
            marks = state if self._table else None
            if marks is not None and before:  # each row has its own language
                return [self._with_text(row, text, {**marks, "language": row.record.get("language")})
                        for row, text in zip(rows, texts, strict=True)]  # fmt: skip
            return [self._with_text(row, text, marks) for row, text in zip(rows, texts, strict=True)]
        row = template[0]
        if isinstance(row.record.get(row.field), list) or (len(texts) > 1 and not before):
            return [self._with_text(row, texts, state)]
        return [self._with_text(row, raw, state)]

    def _with_text(self, row: ListRow, value: Any, state: Mapping[str, Any] | None = None) -> ListRow:
        if row.raw is None and row.field in row.record:
            raise UsageError(f"{self.path}: the text of '{row.key}' is not plain text; edit the file directly")
        name = "captions" if isinstance(value, list) and row.field == "caption" and not row.line else row.field
        record = {key: one for key, one in row.record.items() if key != row.field or key == name}
        if row.raw != value or name not in record:  # a list of one text stays a list
            record[name] = value
        if row.raw != (value if isinstance(value, str) else "\n".join(value)):
            record.pop("claims", None)  # the claims describe the previous text
        if isinstance(row.record.get("structured"), dict):
            record = self._with_structured(row, value)
        if state is not None:
            # Stored candidates belong to the previous text.
            current = state.get("candidates") or (self._table and row.raw == value)
            dropped = self._mirrored if current else (*self._mirrored, "candidates", "score")
            record = {key: one for key, one in record.items() if key not in dropped}
            record |= {key: state[key] for key in self._mirrored if state.get(key)}
        if self._table:
            line = self._csv_line([str(record.get(cell, "")) for cell in self._header])
        else:
            line = json.dumps(record, ensure_ascii=False) + "\n"
        return ListRow(line, record, row.key, name, row.file)

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
        listed = self.path.name in METADATA_FILES
        pattern = dict.fromkeys(self._header, "") if self._table else self._rows[0].record if self._rows else {}
        texts, key = text_keys(GENERATED_KEYS, pattern), self._key_of(id_)
        field = texts[0] if texts else ("text" if listed else "caption")
        named = _key_name(pattern) or ("file_name" if listed else "id")
        return ListRow("", {**(pattern if self._table else {}), named: key, field: ""}, key, field)

    def _key_of(self, id_: str) -> str:
        """Returns what a row of this picture has as its id."""
        return name_in(self._items[id_], self.path.parent) if self.path.name in METADATA_FILES else id_

    def _csv_line(self, cells: Sequence[str]) -> str:
        text = io.StringIO()
        csv.writer(text, delimiter=self._separator, lineterminator="\n").writerow(cells)
        return text.getvalue()

    def strays(self) -> dict[TextPlace, str]:
        self._refresh()
        used = {row for rows in self._by_id.values() for row in rows}
        return {TextPlace(self.path.parent, self.path.name, row.key): row.raw or ""
                for row in self._rows if row not in used}  # fmt: skip

    def move(self, stray: TextPlace, id_: str) -> None:
        rows = [row for row in self._rows if row.key == stray.key]
        for row in rows:
            row.key = self._key_of(id_)
            row.record = {**row.record, _key_name(row.record): row.key}
        self._by_id[id_] = rows
        self.write({id_: self._raw(id_)}, {})

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


def _key_name(names: Collection[str]) -> str:
    """Returns the field or column with the id, or "" if there is none."""
    return find_key(ID_KEYS, names) or next((name for name in names if picture_path({name: "a.jpg"})), "")


def _signature_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns
