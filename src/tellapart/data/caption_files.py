"""Readers of caption files and reference files, in the layouts that common programs write.

| layout | looks like |
|---|---|
| JSON lines, a JSON list of records | ``{"id" or "image_id", "caption"}``, and the names of `tellapart.data.records` |
| COCO results | ``[{"image_id", "caption"}]`` |
| COCO annotations | ``{"images": [{"id", "file_name"}], "annotations": [{"image_id", "caption"}]}`` |
| Karpathy | ``{"images": [{"cocoid" or "filename", "sentences": [{"raw"}]}]}`` |
| JSON pairs | ``[["x.jpg", "a dog"]]``, ``[[391895, "a dog"]]`` |
| JSON object | ``{id: text}``, ``{id: [texts]}``, ``{id: [{"caption"}]}`` |
| Hugging Face's ``metadata.jsonl`` or ``.csv``, or a folder with some | ``{"file_name", "text"}`` |
| a pipeline's output | ``[{"generated_text"}]`` or ``[[{"generated_text"}]]``, in the order of the pictures |
| LLaVA's answers, LLaVA's training data | ``{"question_id", "text"}``; ``{"id", "image", "conversations"}`` |
| lmms-eval's samples | ``{"doc_id", "target", "filtered_resps", "resps"}`` |
| a batch of OpenAI's, Anthropic's, Gemini's server | ``{"custom_id", "response": {"body": {"choices": …}}}``, … |
| Label Studio | ``{"data": {"image"}, "annotations": [{"result": [{"value": {"text"}}]}]}``; its short form |
| exiftool's JSON and CSV | ``{"SourceFile", "AltTextAccessibility" or "XMP:Description" …}``, any may lack it |
| CSV, TSV, Parquet, ``.xlsx`` (first sheet) | columns of the same names; two columns without a header: id and caption |
| Flickr8k's and Flickr30k's tokens | ``name#k<TAB>caption`` |
| lines of a file name or a number, and a caption | ``x.jpg,a dog``, ``x.jpg a dog``, ``391895<TAB>a dog`` |
| GIT's and VinVL's TSV | ``key<TAB>[{"caption": "a dog"}]`` |
| plain text | one caption a line; references of a line separated by tabs |
| a folder | a ``.txt``, else a ``.caption``, else a ``.json`` for each picture |

Of a record with captions of people and of a model, `read_caption_file` takes the model's and `read_reference_file` the
people's. Ids are strings everywhere; a record without an id is called after its picture's file; one that has neither
has its number, from "1", as its id. A text that is a list or dictionary, as JSON, Python or NumPy writes it, is read as
that. One that looks like a list and cannot be read as one, or like a file name, is refused among references; of a
model's captions it is text, which a line names, unless half of the file is so and ``tellapart caption`` did not write
it. Captions that VizWiz marks ``is_rejected`` or ``is_precanned`` are ignored, counted and named. Files may be
compressed (``captions.json.gz``).
"""

from __future__ import annotations

import csv
import io
import itertools
import posixpath
import re
import unicodedata
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from tellapart.data.caption_matching import MAX_SHOWN, CaptionFile, preview_ids
from tellapart.data.dataset import files_below, plain_suffix, read_text, refuse_unread, split_records
from tellapart.data.records import (
    EXIFTOOL_KEY,
    GENERATED_KEYS,
    ID_KEYS,
    MAY_LACK,
    MEDIA,
    REFERENCE_KEYS,
    Flagged,
    MarkedText,
    batch_failure,
    caption_texts,
    clean_line,
    exiftool_names,
    find_key,
    find_value,
    is_file_name,
    picture_key,
    picture_path,
    record_id,
    text_keys,
    vizwiz_flag,
)
from tellapart.data.tables import OPEN_QUOTE, csv_reader, mended
from tellapart.errors import MissingExtra, UsageError
from tellapart.utils.messages import clean_text, parse_json, say, say_once


@dataclass(frozen=True)
class CaptionEntry:
    """The texts of a picture, its id, its file and its split as the record names them ("" where it does not)."""

    id: str
    file: str
    texts: list[str]
    split: str = ""
    failure: str = ""  # why a server's batch has no answer for it


def entry_of(where: str, record: Any, names: Sequence[str]) -> CaptionEntry:
    """The entry of a record: an object with a text under one of ``names``, a text, or a list of texts.

    Raises `UsageError` that begins with ``where``.
    """
    if isinstance(record, list) and len(record) > 1:  # ["x.jpg", "a dog"] or [391895, "a dog"]
        first = str(record[0]).strip() if isinstance(record[0], str | int) else ""
        if is_file_name(first) or first.isdecimal():
            id_, file = ("", first) if is_file_name(first) else (first, "")
            return CaptionEntry(id_, file, texts_in(where, record[1:], record[1:]))
    if isinstance(record, str | list):  # a list of texts, or a pipeline's [{"generated_text"}] for each picture
        return CaptionEntry("", "", texts_in(where, record, record))
    if not isinstance(record, dict):
        raise UsageError(f"{where}: is a {type(record).__name__}; expected {{'id': …, 'caption': …}}")
    if failure := batch_failure(record):
        return CaptionEntry(record_id(record, where), "", [], failure=failure)
    if EXIFTOOL_KEY in record:  # a text of digits is a number in its JSON
        values = [str(value) if type(value) in (int, float) else value for value in record.values()]
        record = dict(zip(exiftool_names(list(record)), values, strict=True))
    if not text_keys(names, record) and MAY_LACK not in names:
        raise UsageError(f"{where}: has no text; expected 'caption', found {sorted(map(str, record))}")
    document = record.get("doc", record.get("data"))  # lmms-eval and Label Studio keep the data set's own record there
    inner = document if isinstance(document, dict) else {}
    parts = record.values() if "doc_id" in record else ()  # lmms-eval's metrics know which picture it was
    metric = next((part for part in parts if isinstance(part, dict) and "image_id" in part), {})
    key = record_id(metric, where) or record_id(inner, where) or record_id(record, where)
    texts = texts_in(where, record, text_value(names, record))
    if flag := vizwiz_flag(record):
        texts = [MarkedText(text, flag=flag) for text in texts]
    return CaptionEntry(key, picture_path(record) or picture_path(inner), texts, split_of(record) or split_of(inner))


def split_of(record: Mapping[str, Any]) -> str:
    """The split that a record names; "" where it names none."""
    split = record.get("split")
    return split if isinstance(split, str) else ""


def text_value(names: Sequence[str], record: dict[str, Any]) -> Any:
    """Returns what stands under the first of the names; an empty text counts, an empty list does not."""
    values = [record[key] for name in names if (key := find_key((name,), record))]
    if not values:
        return [record[key] for key in text_keys(names, record)]
    return next((value for value in values if value is not None and value != []), None)


def texts_in(where: str, holder: Any, value: Any) -> list[str]:
    """The cleaned texts of a value. One that is not there, or empty, is an empty caption of its ``holder``."""
    found = [
        MarkedText(clean_line(text), text.error, text.flag) if isinstance(text, MarkedText) else clean_line(text)
        for text in caption_texts(value, where)
    ]
    return found or ([""] if isinstance(holder, dict | str) else [])


_WRAPPERS = ("results", "predictions", "outputs", "captions", "data", "samples", "sentences", "items", "rows")


def is_json_lines(text: str) -> bool:
    """A first line that is a whole JSON value, with something after it."""
    first, _, rest = text.strip().partition("\n")
    try:
        return isinstance(parse_json(first), dict | list) and bool(rest.strip())
    except (ValueError, RecursionError):
        return False


def _parse(path: Path, text: str, line: int = 0) -> Any:
    try:
        return parse_json(text)
    except RecursionError:
        raise UsageError(f"{path}, line {line or 1}: is nested too deeply") from None
    except ValueError as error:
        at = line or getattr(error, "lineno", 0)  # 0: of the whole text, as where a key stands twice
        where = f"{path}, line {at}" if at else path
        raise UsageError(f"{where}: is not JSON ({getattr(error, 'msg', error)})") from None


def read_json_lines(path: Path, text: str, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """The entries of a file with a JSON value a line. Raises `UsageError` with the line's number."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield entry_of(f"{path}, line {number}", _parse(path, line, number), names)


def read_json_text(path: Path, text: str, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """The entries of a file that is one JSON value. Raises `UsageError` with the line at fault."""
    return _read_value(path, _parse(path, text), names)


def _read_value(path: Path, data: Any, names: Sequence[str], *, unwrap: bool = True) -> Iterator[CaptionEntry]:
    data = split_records(data)
    if isinstance(data, dict):
        yield from _read_object(path, data, names, unwrap)
    elif isinstance(data, list):
        printed = [record for record in data if isinstance(record, dict) and EXIFTOOL_KEY in record]
        if any(text_keys(names, exiftool_names(list(record))) for record in printed):
            names = (*names, MAY_LACK)  # pictures without the field that was asked for are a SourceFile alone
        for number, record in enumerate(data, 1):
            yield entry_of(f"{path}, entry {number}", record, names)
    else:
        raise UsageError(f"{path}: holds a {type(data).__name__}; expected a list of records or an object of captions")


def _read_object(path: Path, data: dict[str, Any], names: Sequence[str], unwrap: bool) -> Iterator[CaptionEntry]:
    images = data.get("images")
    if isinstance(data.get("annotations"), list):
        listed = [image for image in images or () if isinstance(image, dict)] if isinstance(images, list) else []
        files: dict[str, str] = {}
        for image in listed:
            if files.setdefault(key := str(image.get("id")), file := picture_path(image)) != file:
                raise UsageError(f"{path}: two pictures have the id '{key}', {files[key]} and {file}; expected one")
        for entry in _read_value(path, data["annotations"], names):
            yield replace(entry, file=entry.file or files.get(entry.id, ""))
        return
    if isinstance(images, list) and not (find_value(ID_KEYS, data) or find_key(names, data)):
        yield from _read_karpathy(path, images)
        return
    if _is_record(data, names):
        yield entry_of(f"{path}, entry 1", data, names)  # a JSONL file of one line
        return
    wrapped = [key for key in _WRAPPERS if unwrap and isinstance(data.get(key), list | dict)]
    if len(wrapped) == 1 and (len(data) == 1 or _holds_records(data[wrapped[0]])):
        yield from _read_value(path, data[wrapped[0]], names, unwrap=False)
        return
    for key, value in data.items():
        where = f"{path}, id {key!r}"
        record = value if isinstance(value, dict) and text_keys(names, value) else None
        inner = value if record is None else text_value(names, record)
        own = record or {}
        yield CaptionEntry(str(key), picture_path(own), texts_in(where, value, inner), split_of(own))


def _holds_records(value: Any) -> bool:
    return bool(value) and (isinstance(value, dict) or isinstance(value[0], dict))


def _is_record(data: dict[str, Any], names: Sequence[str]) -> bool:
    return bool(text_keys(names, data)) and bool(find_key(ID_KEYS, data) or picture_key(data))


def _read_karpathy(path: Path, images: list[Any]) -> Iterator[CaptionEntry]:
    for number, image in enumerate(images, 1):
        where = f"{path}, image {number}"
        if not isinstance(image, dict) or not isinstance(image.get("sentences"), list):
            raise UsageError(f"{where}: has no 'sentences'; expected Karpathy's JSON, or COCO's with 'annotations'")
        key = next((image[name] for name in ("cocoid", "filename", "imgid") if name in image), None)
        if key is None:
            raise UsageError(f"{where}: has neither 'cocoid' nor 'filename' nor 'imgid'")
        texts = texts_in(where, image["sentences"], image["sentences"])
        yield CaptionEntry(str(key), picture_path(image), texts, split_of(image))


def sheet_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number of each row, from 1, and its cells as text; empty cells at its end are left out.

    Raises `UsageError` for a file that is not there, or no Excel file.
    """

    try:
        import openpyxl
        from openpyxl.utils.exceptions import InvalidFileException
    except ModuleNotFoundError:
        raise MissingExtra("excel", "reading Excel files") from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        first, *others = book.worksheets
        if filled := [sheet.title for sheet in others if any(map(any, sheet.iter_rows(values_only=True)))]:
            say(f"{path}: only its first sheet is read, '{first.title}'; there are: {', '.join(filled)}")
        for number, values in enumerate(first.iter_rows(values_only=True), 1):
            cells = [_cell_text(value) for value in values]
            while cells and not cells[-1]:
                cells.pop()
            yield number, cells
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; give the path of a file of captions") from None
    except (
        *(OSError, zipfile.BadZipFile, InvalidFileException, ParseError),
        *(KeyError, IndexError, ValueError, TypeError),  # of openpyxl, where parts of the file are damaged
    ) as error:
        raise UsageError(f"{path}: damaged or no Excel file ({str(error).splitlines()[0] or error!r})") from None


def _cell_text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # Excel has no whole numbers
    return "" if value is None else str(value)


_SEPARATORS = ",;\t|"
_SEPARATOR_LINE = re.compile(r"\s*sep=[,;\t|]\n", re.IGNORECASE)  # Excel's, in front of the header


def has_header(text: str, names: Sequence[str]) -> bool:
    """Returns whether a text's first line names the columns of a table: a picture or an id, and a caption."""
    first = _SEPARATOR_LINE.sub("", text, count=1).lstrip("\n").partition("\n")[0]
    separator = max(_SEPARATORS, key=first.count)
    cells = [cell.lower() for cell in exiftool_names([cell.strip() for cell in first.split(separator)])]
    return len(cells) > 1 and bool(picture_key(cells) or find_key(ID_KEYS, cells)) and bool(text_keys(names, cells))


def read_table(path: Path, text: str, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """The entries of a CSV or TSV text. Raises `UsageError` with the line's number."""
    if marked := _SEPARATOR_LINE.match(text):
        text = "\n" + text[marked.end() :]  # lines keep their numbers
    first = text.lstrip("\n").partition("\n")[0]
    separator = "\t" if "\t" in first and plain_suffix(path) == ".tsv" else max(_SEPARATORS, key=first.count)
    return _read_rows(path, _csv_rows(path, text, separator), names)


def read_excel(path: Path, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """The entries of an Excel file's first sheet. Raises `UsageError` with the row's number."""

    return _read_rows(path, sheet_rows(path), names)


def _csv_rows(path: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the line on which each row ends, and its cells."""
    reader = csv_reader(io.StringIO(text, newline=""), separator)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: {error} {OPEN_QUOTE}") from None


def _read_rows(path: Path, rows: Iterable[tuple[int, list[str]]], names: Sequence[str]) -> Iterator[CaptionEntry]:
    header: list[str] | None = None
    for number, row in rows:
        where, cells = f"{path}, line {number}", [cell.strip() for cell in row]
        if not any(cells):
            continue
        if header is None:
            cells = exiftool_names(cells)
            header = _header(path, cells, names)
            if header is not cells:
                yield entry_of(where, dict(zip(header, cells, strict=True)), names)
        elif len(cells) > len(header):
            raise UsageError(f"{where}: has more fields than the header; put captions with commas in double quotes")
        else:
            yield entry_of(where, dict(zip(header, mended(cells, header), strict=False)), names)


def _header(path: Path, cells: list[str], names: Sequence[str]) -> list[str]:
    """The names of the columns: the cells themselves, or of two cells that are none ``id`` and ``caption``."""
    has_key, has_text = find_key(ID_KEYS, cells) or picture_key(cells), text_keys(names, cells)
    for name in (has_key, *has_text):
        if name and cells.count(name) > 1:
            raise UsageError(f"{path}: {cells.count(name)} columns are called '{name}'; rename or remove all but one")
    if has_key and (has_text or MAY_LACK in names):
        return cells
    if len(cells) == 2 and not has_key and not has_text:
        return ["id", "caption"]
    raise UsageError(
        f"{path}: the header is '{','.join(cells)}'; expected the columns 'id' (or image, file_name, …) and 'caption' "
        "(or text, prediction, …)"
    )


def read_parquet(path: Path, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """The entries of a Parquet file; the bytes of pictures are not read. Raises `UsageError`."""
    for number, row in enumerate(_parquet_rows(path, names)):
        yield entry_of(f"{path}, row {number}", row, names)


def _without_bytes(schema: Any, name: str) -> str:
    """A column, or of pictures in a struct only their paths."""
    import pyarrow

    kind = schema.field(name).type
    return f"{name}.path" if pyarrow.types.is_struct(kind) and kind.get_field_index("path") >= 0 else name


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Returns where each record stands and all its fields, but the bytes of pictures.

    JSON lines, a JSON list of records, an object of records by id, a table with a header (CSV, TSV, Excel), Parquet.
    Raises `UsageError` for any other file.
    """
    suffix = plain_suffix(path)
    if suffix in (".parquet", ".pq"):
        yield from ((f"{path}, row {number}", row) for number, row in enumerate(_parquet_rows(path)))
        return
    text = "" if suffix in (".xlsx", ".xlsm") else _read(path)
    if not text or suffix in (".csv", ".tsv"):
        first = text.partition("\n")[0]
        rows = _csv_rows(path, text, max(_SEPARATORS, key=first.count)) if text else sheet_rows(path)
        header: list[str] = []
        for number, row in rows:
            cells = [cell.strip() for cell in row]
            if header and any(cells):
                yield f"{path}, line {number}", dict(zip(header, mended(cells, header), strict=False))
            header = header or cells
        return
    if suffix in (".jsonl", ".ndjson") or is_json_lines(text):
        values = [_parse(path, line, n) if line.strip() else None for n, line in enumerate(text.split("\n"), 1)]
    else:
        values = _parse(path, text)
    if isinstance(values, dict):  # as kohya's scripts write it
        values = [{"id": key, **value} if isinstance(value, dict) else value for key, value in values.items()]
    for number, value in enumerate(values if isinstance(values, list) else [values], 1):
        if value is not None and not isinstance(value, dict):
            raise UsageError(f"{path}, record {number}: is a {type(value).__name__}; expected an object of fields")
        if value is not None:
            yield f"{path}, record {number}", value


def _parquet_rows(path: Path, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """All columns that hold no bytes; with ``names`` those of the texts under one of them, the id and the picture."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtra("parquet", "reading Parquet") from None
    try:
        schema = pyarrow.parquet.read_schema(path)
        columns = schema.names
        if names:
            if not (texts := text_keys(names, columns)) and MAY_LACK not in names:
                raise UsageError(f"{path}: no column of captions; there are: {', '.join(columns)}")
            columns = [*texts, *filter(None, (find_key(ID_KEYS, columns), picture_key(columns)))]
        columns = [_without_bytes(schema, name) for name in columns]
        kept = [name for name in columns if "." in name or not pyarrow.types.is_binary(schema.field(name).type)]
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path, columns=kept).to_pylist()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; give the path of a file of captions") from None
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path}: damaged or not Parquet ({str(error).splitlines()[0]})") from None
    return rows


_KEYED_LINES = (
    re.compile(r"(?P<key>[^\t]+)#\d+\t(?P<text>.*)"),  # Flickr8k's and Flickr30k's tokens
    re.compile(rf"(?P<key>\d+|\S[^\t,;|]*\.{MEDIA})(?:#\d+)? *(?:[,;|\t]|:\s)(?P<text>.*)", re.IGNORECASE),
    re.compile(rf"(?P<key>\S+\.{MEDIA})(?:#\d+)? +(?P<text>.*)", re.IGNORECASE),
    re.compile(r"""(?P<key>[^\t]+)\t(?P<text> *[\[{] *["'\[{].*)"""),  # GIT's and VinVL's key and JSON
)
_COMMENT_NUMBER = re.compile(r" *\d+ *[,;|\t]")  # Flickr30k's "x.jpg| 0| a dog"
_QUOTED = re.compile(r'\s*"((?:[^"]|"")*)"\s*')
_MARKUP = re.compile(r"\s*<(?:!doctype|\?xml|html|head|body|table)\b", re.IGNORECASE)
_BESIDE = (".txt", ".caption", ".json")  # beside pictures, the first that a folder has
_ARROW = (
    "Arrow's format is not read here; save it as Parquet, in Python: "
    "import pandas; pandas.read_feather('FILE').to_parquet('captions.parquet')"
)
_NOT_TEXT = {
    ".tar": "a WebDataset holds pictures: give it with --data, and here a file of captions (JSON, JSONL, CSV, …)",
    ".xml": "XML is not read here; export a file of captions as JSON, JSONL, CSV, Parquet or text",
    ".bz2": "only .gz is unpacked here; type: bunzip2 -k FILE, and give what it makes",
    ".xz": "only .gz is unpacked here; type: unxz -k FILE, and give what it makes",
    ".zst": "only .gz is unpacked here; type: unzstd FILE, and give what it makes",
    ".feather": _ARROW,
    ".arrow": _ARROW,
    ".xls": "Excel's old format is not read here; save it as .xlsx or .csv",
}
METADATA_FILES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")


def read_captions(path: str | Path) -> dict[str, str]:
    """One caption per id. Raises `UsageError` where the file has an id twice (see `read_caption_lists`)."""
    captions = read_caption_lists(path)
    doubles = [key for key, texts in captions.items() if len(texts) > 1]
    if doubles:
        raise UsageError(
            f"{path}: {len(doubles)} ids have several captions ({preview_ids(doubles)}); expected one for each id"
        )
    return {key: texts[0] for key, texts in captions.items()}


def read_caption_lists(path: str | Path) -> dict[str, list[str]]:
    """Every caption of every id, in the order of the file; plain text is one caption a line."""
    return read_caption_file(path).texts


def read_references(path: str | Path) -> dict[str, list[str]]:
    """The references of every id, in the order of the file; plain text has them separated by tabs."""
    return read_reference_file(path).texts


def read_caption_file(path: str | Path) -> CaptionFile:
    """Generated captions by id (layouts: see the module). Raises `UsageError`."""
    path = Path(path)
    as_written = path.with_name(f"{path.name}.settings.json").is_file()  # beside what ``tellapart caption`` writes
    return _collect(path, _entries(path, GENERATED_KEYS, tabs=False), 1.0 if as_written else 0.5)


def read_reference_file(path: str | Path) -> CaptionFile:
    """References by id. Raises `UsageError`."""
    return _collect(Path(path), _entries(Path(path), REFERENCE_KEYS, tabs=True), 0.0)


def _collect(path: Path, entries: Iterable[CaptionEntry], most_unread: float) -> CaptionFile:
    """The texts of all entries. ``most_unread``: from this share on texts that cannot be read (`MarkedText`) are
    refused; below it, or where it is 1, they are text, and named."""
    texts: dict[str, list[str]] = {}
    files: dict[str, str] = {}
    splits: dict[str, str] = {}
    failures: dict[str, str] = {}
    unread: list[tuple[str, MarkedText]] = []
    flagged = Flagged(str(path))
    bare = 0
    for number, entry in enumerate(entries, start=1):
        key = clean_text(entry.id or entry.file or str(number))
        if entry.failure:
            failures[key] = entry.failure
            continue
        bare += not (entry.id or entry.file)
        marked = [text for text in entry.texts if isinstance(text, MarkedText)]
        unread += [(key, text) for text in marked if text.error and not text.flag]
        own = texts.setdefault(key, [])
        own += [str(text) for text in entry.texts if not flagged.add(getattr(text, "flag", ""), key)]
        if entry.file:
            files.setdefault(key, entry.file)
        if entry.split:
            splits.setdefault(key, entry.split)
    lost = [f"{key!r} ({why})" for key, why in failures.items() if key not in texts]  # not asked again since
    if lost:
        more = f" and {len(lost) - MAX_SHOWN} more" if len(lost) > MAX_SHOWN else ""
        found = f"{path}: {len(lost):,} of {number:,} lines have no answer: {', '.join(lost[:MAX_SHOWN])}{more}"
        if not texts:
            raise UsageError(f"{found}; expected at least one caption")
        say(f"{found}; the others are read")
    if not texts:
        raise UsageError(f"{path}: has no captions; expected at least one")
    flagged.say()
    if unread:
        (first, text), count = unread[0], sum(map(len, texts.values()))
        if most_unread < 1 and len(unread) >= most_unread * count and text.error is not None:
            raise text.error
        say_once(
            f"{path}: {len(unread):,} of {count:,} captions look like lists or file names, and are read as text, such "
            f"as that of {first!r}: {text[:60]!r}"
        )
    if 0 < bare < number:
        raise UsageError(
            f"{path}: {bare} of {number} records have no id; expected one of {', '.join(ID_KEYS[:5])}, … in all"
        )
    return CaptionFile(str(path), texts, files, splits, numbered=bool(bare))


def _entries(path: Path, names: Sequence[str], *, tabs: bool) -> Iterator[CaptionEntry]:
    """The entries of a file, whatever its layout, which its content says; Parquet and tables also its suffix."""
    if path.is_dir():
        return _read_folder(path, names, tabs)
    suffix = plain_suffix(path)
    if suffix in (".parquet", ".pq"):
        return read_parquet(path, names)
    if suffix in (".xlsx", ".xlsm"):
        return read_excel(path, names)
    refuse_unread(path)
    if suffix in _NOT_TEXT:
        raise UsageError(f"{path}: {_NOT_TEXT[suffix].replace('FILE', str(path))}")
    text = _read(path)
    start = text.lstrip()[:1]
    if suffix in (".csv", ".tsv") or (start not in "[{" and has_header(text, names)):
        return read_table(path, text, names)
    if suffix in (".jsonl", ".ndjson") or (start in "[{" and is_json_lines(text)):
        return read_json_lines(path, text, names)
    if suffix == ".json" or start in "[{":
        return read_json_text(path, text, names)
    return _read_lines(path, text, tabs)


def _read(path: Path) -> str:
    text = read_text(path)
    if not text.strip():
        raise UsageError(f"{path}: is empty; expected at least one caption")
    return text


def metadata_files(folder: Path) -> list[Path]:
    """Hugging Face's lists of pictures in ``folder`` and below it, one of each folder; hidden ones are passed over."""
    found: dict[Path, Path] = {}
    for name in METADATA_FILES:
        for file in files_below(folder, f"**/{name}"):
            found.setdefault(file.parent, file)
    return list(found.values())


def read_metadata(folder: Path, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """The entries of Hugging Face's lists; files are relative to ``folder``. Raises `UsageError`."""
    lists = metadata_files(folder)
    for file in lists:
        for entry in _entries(file, names, tabs=False):
            if not (name := entry.file or entry.id):
                raise UsageError(f"{file}: a row has no 'file_name'; expected one in all")
            path = posixpath.join(file.parent.relative_to(folder).as_posix(), name.replace("\\", "/"))
            # ids of several lists may begin anew in each
            yield replace(entry, file=posixpath.normpath(path), id=entry.id if len(lists) == 1 else "")


_FOREIGN = re.compile(r"(?:read[ _-]?me|licen[cs]e|copying|notice|change[ _-]?log|requirements)\b.*", re.IGNORECASE)


def sidecars(pictures: Iterable[str], texts: Iterable[str], suffixes: Sequence[str]) -> dict[str, str]:
    """Returns the text file of each picture that has one, by their paths inside a folder.

    The text has the picture's name without its suffix, or all of it, and one of ``suffixes``, the first that is there:
    ``a.txt``, ``a.jpg.txt``, ``a.TXT``. Letters such as é are the same however they are composed.
    """
    files: dict[str, str] = {}
    for text in sorted(texts):
        stem, suffix = posixpath.splitext(text)
        files[unicodedata.normalize("NFC", stem) + suffix.lower()] = text
    found = {}
    for picture in pictures:
        name = unicodedata.normalize("NFC", picture)
        stems = (posixpath.splitext(name)[0], name)
        if text := next((files[key] for suffix in suffixes for stem in stems if (key := stem + suffix) in files), ""):
            found[picture] = text
    return found


def without_foreign(texts: Iterable[str]) -> list[str]:
    """Leaves out texts about the folder, such as ``README.txt``."""
    return [text for text in texts if not _FOREIGN.fullmatch(posixpath.basename(text))]


def say_unread(folder: Path, texts: Sequence[str]) -> None:
    """Names the text files of a folder that were not read."""
    if texts:
        some = ", ".join(texts[:MAX_SHOWN]) + (", …" if len(texts) > MAX_SHOWN else "")
        say(f"{folder}: {len(texts):,} text files are beside no picture of their name and were not read: {some}")


def say_passed_over(folder: Path, texts: Iterable[str], chosen: Collection[str]) -> None:
    """Names the ``.caption`` files that were not read because the ``.txt`` of the same picture was."""
    stems = {posixpath.splitext(name)[0] for name in chosen}
    others = [text for text in texts if text.lower().endswith(".caption") and text not in chosen]
    if others := sorted(text for text in others if posixpath.splitext(text)[0] in stems):
        say(
            f"{folder}: {len(others):,} .caption files were not read, because their pictures also have a .txt: "
            f"{', '.join(others[:MAX_SHOWN])}{', …' if len(others) > MAX_SHOWN else ''}"
        )


def texts_beside(text: str, lines: str) -> list[str]:
    """Returns the captions in a text file beside a picture: its lines ("references"), or all of it as one ("one")."""
    if lines == "one":
        return [whole] if (whole := " ".join(text.split())) else []
    return [line for line in text.split("\n") if line.strip()]


def lines_in(texts: Iterable[str]) -> str:
    """Returns what lines are in the text files of a folder: "one", a caption in all, or "references", a caption each.

    The first where most files with several lines are prose (`is_prose`), as models write it.
    """
    several = [is_prose(text) for text in texts if "\n" in text.strip()]
    return "one" if 2 * sum(several) > len(several) else "references"


_NEXT_SENTENCE = re.compile(r"""[.!?]["'”’)]*\s+["'“‘(]*[A-Z]""")
_WHOLE_SENTENCE = re.compile(r"""[.!?…:]["'”’)\]]*$""")


def is_prose(text: str) -> bool:
    """Says whether lines are one text that goes on, as models write it, and not a caption each.

    So it is where lines were wrapped at one width (no first word of a line fits behind the line before), the text
    begins with a capital, some line with a small letter, and the last one ends in a stop; or where paragraphs of whole
    sentences, one of them of several, stand apart by a blank line.
    """
    lines = [line.strip() for line in text.strip().split("\n")]
    if not lines[0]:
        return False
    if "" in lines:
        several = any(_NEXT_SENTENCE.search(line) for line in lines)
        return several and all(_WHOLE_SENTENCE.search(line) for line in lines if line)
    width = max(map(len, lines), default=0)
    full = all(len(one) + 1 + len(other.split()[0]) > width for one, other in itertools.pairwise(lines))
    if not (full and lines[0][:1].isupper() and _WHOLE_SENTENCE.search(lines[-1])):
        return False
    return any(line[0].islower() for line in lines[1:])


def _read_folder(folder: Path, names: Sequence[str], tabs: bool) -> Iterator[CaptionEntry]:
    """A folder with Hugging Face's metadata, or with a text beside each picture (`texts_beside`)."""
    if metadata_files(folder):
        yield from read_metadata(folder, names)
        return
    inside = [file.relative_to(folder).as_posix() for file in files_below(folder, "**/*")]
    texts = [name for name in inside if posixpath.splitext(name)[1].lower() in _BESIDE]
    chosen = list(dict.fromkeys(sidecars([name for name in inside if is_file_name(name)], texts, _BESIDE).values()))
    if chosen:
        used = {posixpath.splitext(name)[0] for name in chosen}
        say_unread(folder, [name for name in texts if posixpath.splitext(name)[0] not in used])
        say_passed_over(folder, texts, chosen)
    for suffix in _BESIDE:  # a folder of captions alone
        chosen = chosen or [name for name in without_foreign(texts) if name.lower().endswith(suffix)]
    if not chosen:
        raise UsageError(
            f"{folder}: a folder without {', '.join(METADATA_FILES)}, {', '.join(_BESIDE[:-1])} or {_BESIDE[-1]}; "
            "expected a file of captions"
        )
    contents = {name: read_text(folder / name) for name in chosen}
    lines = lines_in(text for name, text in contents.items() if not name.lower().endswith(".json"))
    for name, text in contents.items():
        file, captions = folder / name, [""]  # empty where a system wrote nothing
        if text.strip() and name.lower().endswith(".json"):
            captions = [caption for entry in read_json_text(file, text, names) for caption in entry.texts]
        elif text.strip():
            captions = texts_in(str(file), None, texts_beside(text, lines))
        yield CaptionEntry(posixpath.splitext(name)[0], "", captions)


def _read_lines(path: Path, text: str, tabs: bool) -> Iterator[CaptionEntry]:
    if _MARKUP.match(text):
        raise UsageError(f"{path}: HTML or XML is not read here; export its table as CSV, JSON or Parquet")
    lines = text.removesuffix("\n").split("\n")
    for pattern in _KEYED_LINES:
        keyed = [pattern.match(line) for line in lines]
        if all(match or not line.strip() for match, line in zip(keyed, lines, strict=True)):
            yield from _read_keyed(path, keyed)
            return
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        if (match := _KEYED_LINES[1].match(line)) and is_file_name(match["key"]):
            raise UsageError(f"{where}: begins with the file name '{match['key']}', and other lines do not; name all")
        if "\t" in line and not tabs:
            raise UsageError(f"{where}: has a tab; expected one caption a line (is this the references?)")
        yield CaptionEntry("", "", texts_in(where, line, line.split("\t")))


def _read_keyed(path: Path, keyed: Sequence[re.Match[str] | None]) -> Iterator[CaptionEntry]:
    """The entries of lines that begin with a file name or an id; blank lines are passed over."""
    counted = all(not match or _COMMENT_NUMBER.match(match["text"]) for match in keyed)
    for number, match in enumerate(keyed, 1):
        if match:
            text = _COMMENT_NUMBER.sub("", match["text"]) if counted else match["text"]
            quoted = _QUOTED.fullmatch(text)
            texts = [quoted[1].replace('""', '"')] if quoted else text.split("\t")
            file = match["key"] if is_file_name(match["key"]) else ""
            yield CaptionEntry("" if file else match["key"], file, texts_in(f"{path}, line {number}", text, texts))
