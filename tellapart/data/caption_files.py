"""Reading files of captions and of references, in the layouts that are found in the wild.

| layout | looks like |
|---|---|
| JSON lines, a JSON list of records | ``{"id" or "image_id", "caption"}``, and the names of `tellapart.data.records` |
| COCO results | ``[{"image_id", "caption"}]`` |
| COCO annotations | ``{"images": [{"id", "file_name"}], "annotations": [{"image_id", "caption"}]}`` |
| Karpathy | ``{"images": [{"cocoid" or "filename", "sentences": [{"raw"}]}]}`` |
| JSON object | ``{id: text}``, ``{id: [texts]}``, ``{id: [{"caption"}]}`` |
| Hugging Face's ``metadata.jsonl`` or ``.csv``, or its folder | ``{"file_name", "text"}`` |
| a pipeline's output | ``[{"generated_text"}]`` or ``[[{"generated_text"}]]``, in the order of the pictures |
| LLaVA's answers, LLaVA's training data | ``{"question_id", "text"}``; ``{"id", "image", "conversations"}`` |
| lmms-eval's samples | ``{"doc_id", "target", "filtered_resps", "resps"}`` |
| a server's batch | ``{"custom_id", "response": {"body": {"choices": …}}}`` |
| CSV, TSV, Parquet | columns of the same names; two columns without a header: id and caption |
| Flickr8k tokens | ``name#k<TAB>caption`` |
| plain text | one caption a line; references of a line separated by tabs |
| a folder | a ``.txt`` for each picture |

Of a record with captions of people and of a model, `read_caption_file` takes the model's and `read_reference_file` the
people's. Ids are strings everywhere; a record without an id is called after its picture's file; one that has neither
has its number, from "1", as its id.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tellapart.data.records import (
    GENERATED_KEYS,
    ID_KEYS,
    PICTURE_KEYS,
    REFERENCE_KEYS,
    caption_texts,
    find_key,
    find_value,
    picture_path,
    record_id,
)
from tellapart.errors import MissingExtra, UsageError
from tellapart.utils.json_text import parse_json
from tellapart.utils.text import clean_text

_TOKEN_LINE = re.compile(r"^(?P<id>[^\t]+)#\d+\t(?P<text>.*)$")
_PICTURE_NAME = re.compile(r"^\S.*\.(jpe?g|png|webp|gif|bmp|tiff?|mp4|avi|webm|mov|mkv)$", re.IGNORECASE)
_SEPARATORS = ",;\t|"
_WRAPPERS = ("results", "predictions", "outputs", "captions", "data", "samples", "sentences", "items", "rows")
METADATA_FILES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
MAX_SHOWN = 3  # offending ids named in a message


@dataclass(frozen=True)
class CaptionFile:
    """Texts by id, in the order of the file.

    ``files`` has the picture's file of an id as the file names it, where it does. ``numbered``: the ids are places in
    the file, from "1".
    """

    name: str
    texts: dict[str, list[str]]
    files: dict[str, str] = field(default_factory=dict)
    numbered: bool = False


@dataclass(frozen=True)
class _Entry:
    id: str
    file: str
    texts: list[str]


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
    """What a model wrote, by id (the module's docstring has the layouts). Raises `UsageError`."""
    return _collect(Path(path), _entries(Path(path), GENERATED_KEYS, tabs=False))


def read_reference_file(path: str | Path) -> CaptionFile:
    """What people wrote, by id. Raises `UsageError`."""
    return _collect(Path(path), _entries(Path(path), REFERENCE_KEYS, tabs=True))


def preview_ids(keys: Iterable[str]) -> str:
    """The first few ids, for a message."""
    shown = list(keys)
    more = len(shown) - MAX_SHOWN
    return ", ".join(repr(key) for key in shown[:MAX_SHOWN]) + (f" and {more} more" if more > 0 else "") or "none"


def _collect(path: Path, entries: Iterable[_Entry]) -> CaptionFile:
    texts: dict[str, list[str]] = {}
    files: dict[str, str] = {}
    bare = 0
    for number, entry in enumerate(entries, start=1):
        key = clean_text(entry.id or entry.file or str(number))
        bare += not (entry.id or entry.file)
        texts.setdefault(key, []).extend(entry.texts)
        if entry.file:
            files.setdefault(key, entry.file)
    if not texts:
        raise UsageError(f"{path}: has no captions; expected at least one")
    if 0 < bare < number:
        raise UsageError(
            f"{path}: {bare} of {number} records have no id; expected one of {', '.join(ID_KEYS[:5])}, … in all"
        )
    return CaptionFile(str(path), texts, files, numbered=bool(bare))


def _entries(path: Path, names: Sequence[str], *, tabs: bool) -> Iterator[_Entry]:
    """The entries of a file, whatever its layout, which its content says; Parquet and tables also its suffix."""
    if path.is_dir():
        return _from_folder(path, names, tabs)
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        return _from_parquet(path, names)
    text = _read(path)
    start = text.lstrip()[:1]
    if suffix in (".csv", ".tsv") or (start not in "[{" and _has_header(text, names)):
        return _from_table(path, text, names)
    if suffix in (".jsonl", ".ndjson") or (start in "[{" and _is_json_lines(text)):
        return _from_json_lines(path, text, names)
    if suffix == ".json" or start in "[{":
        return _from_json(path, _parse(path, text), names)
    return _from_lines(path, text, tabs)


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; give the path of a file of captions") from None
    except UnicodeDecodeError:
        raise UsageError(
            f"{path}: is not text in UTF-8; give a file of captions (JSON, JSONL, CSV, Parquet or text)"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not text.strip():
        raise UsageError(f"{path}: is empty; expected at least one caption")
    return text


def _from_folder(folder: Path, names: Sequence[str], tabs: bool) -> Iterator[_Entry]:
    """A folder with Hugging Face's metadata, or with a text beside each picture, whose lines are captions."""
    for name in METADATA_FILES:
        if (folder / name).is_file():
            yield from _entries(folder / name, names, tabs=tabs)
            return
    files = sorted(folder.rglob("*.txt"))
    if not files:
        raise UsageError(f"{folder}: a folder without {', '.join(METADATA_FILES)} or .txt; expected a file of captions")
    for file in files:
        lines = [_clean(line) for line in _read(file).split("\n") if line.strip()]
        yield _Entry(file.relative_to(folder).with_suffix("").as_posix(), "", lines if tabs else lines[:1])


def _is_json_lines(text: str) -> bool:
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
        at = line or getattr(error, "lineno", 0)
        raise UsageError(f"{path}, line {at}: is not JSON ({getattr(error, 'msg', error)})") from None


def _from_json_lines(path: Path, text: str, names: Sequence[str]) -> Iterator[_Entry]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _record(f"{path}, line {number}", _parse(path, line, number), names)


def _from_json(path: Path, data: Any, names: Sequence[str], *, unwrap: bool = True) -> Iterator[_Entry]:
    if isinstance(data, dict):
        yield from _from_object(path, data, names, unwrap)
    elif isinstance(data, list):
        for number, record in enumerate(data, 1):
            yield _record(f"{path}, entry {number}", record, names)
    else:
        raise UsageError(f"{path}: holds a {type(data).__name__}; expected a list of records or an object of captions")


def _from_object(path: Path, data: dict[str, Any], names: Sequence[str], unwrap: bool) -> Iterator[_Entry]:
    images = data.get("images")
    if isinstance(data.get("annotations"), list):
        listed = [image for image in images or () if isinstance(image, dict)] if isinstance(images, list) else []
        files = {str(image.get("id")): picture_path(image) for image in listed}
        for entry in _from_json(path, data["annotations"], names):
            yield _Entry(entry.id, entry.file or files.get(entry.id, ""), entry.texts)
        return
    if isinstance(images, list) and not (find_value(ID_KEYS, data) or find_key(names, data)):
        yield from _from_karpathy(path, images)
        return
    if _is_record(data, names):
        yield _record(f"{path}, entry 1", data, names)  # a JSONL file of one line
        return
    wrapped = [key for key in _WRAPPERS if unwrap and isinstance(data.get(key), list | dict)]
    if len(wrapped) == 1 and (len(data) == 1 or _holds_records(data[wrapped[0]])):
        yield from _from_json(path, data[wrapped[0]], names, unwrap=False)
        return
    for key, value in data.items():
        where = f"{path}, id {key!r}"
        own = value if isinstance(value, dict) and find_key(names, value) else None
        inner = value if own is None else _text_value(names, own)
        yield _Entry(str(key), "" if own is None else picture_path(own), _texts(where, value, inner))


def _holds_records(value: Any) -> bool:
    return bool(value) and (isinstance(value, dict) or isinstance(value[0], dict))


def _is_record(data: dict[str, Any], names: Sequence[str]) -> bool:
    return bool(find_key(names, data)) and bool(find_key((*ID_KEYS, *PICTURE_KEYS), data))


def _from_karpathy(path: Path, images: list[Any]) -> Iterator[_Entry]:
    for number, image in enumerate(images, 1):
        where = f"{path}, image {number}"
        if not isinstance(image, dict) or not isinstance(image.get("sentences"), list):
            raise UsageError(f"{where}: has no 'sentences'; expected Karpathy's JSON, or COCO's with 'annotations'")
        key = next((image[name] for name in ("cocoid", "filename", "imgid") if name in image), None)
        if key is None:
            raise UsageError(f"{where}: has neither 'cocoid' nor 'filename' nor 'imgid'")
        yield _Entry(str(key), picture_path(image), _texts(where, image["sentences"], image["sentences"]))


def _has_header(text: str, names: Sequence[str]) -> bool:
    """Whether a text's first line names the columns of a table: a picture or an id, and a caption."""
    first = text.lstrip("\n").partition("\n")[0]
    separator = max(_SEPARATORS, key=first.count)
    cells = [cell.strip().lower() for cell in first.split(separator)]
    return len(cells) > 1 and bool(find_key((*PICTURE_KEYS, *ID_KEYS), cells)) and bool(find_key(names, cells))


def _from_table(path: Path, text: str, names: Sequence[str]) -> Iterator[_Entry]:
    first = text.lstrip("\n").partition("\n")[0]
    separator = "\t" if "\t" in first and path.suffix.lower() == ".tsv" else max(_SEPARATORS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    header: list[str] | None = None
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise UsageError(f"{path}, line {reader.line_num}: {error} (a quote that is not closed?)") from None
        if row is None:
            return
        where, cells = f"{path}, line {reader.line_num}", [cell.strip() for cell in row]
        if not any(cells):
            continue
        if header is None:
            header = _header(path, cells, names)
            if header is not cells:
                yield _record(where, dict(zip(header, cells, strict=True)), names)
        elif len(cells) > len(header):
            raise UsageError(f"{where}: has more fields than the header; put captions with commas in double quotes")
        else:
            yield _record(where, dict(zip(header, cells, strict=False)), names)


def _header(path: Path, cells: list[str], names: Sequence[str]) -> list[str]:
    """The names of the columns: the cells themselves, or of two cells that are none ``id`` and ``caption``."""
    has_key, has_text = find_key((*ID_KEYS, *PICTURE_KEYS), cells), find_key(names, cells)
    if has_key and has_text:
        return cells
    if len(cells) == 2 and not has_key and not has_text:
        return ["id", "caption"]
    raise UsageError(
        f"{path}: the header is '{','.join(cells)}'; expected the columns 'id' (or image, file_name, …) and 'caption' "
        "(or text, prediction, …)"
    )


def _from_parquet(path: Path, names: Sequence[str]) -> Iterator[_Entry]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtra("parquet", "reading Parquet") from None
    try:
        schema = pyarrow.parquet.read_schema(path)
        text = find_key(names, schema.names)
        if not text:
            raise UsageError(f"{path}: no column of captions; there are: {', '.join(schema.names)}")
        wanted = [text, *(name for kind in (ID_KEYS, PICTURE_KEYS) if (name := find_key(kind, schema.names)))]
        rows = pyarrow.parquet.read_table(path, columns=[_without_bytes(schema, name) for name in wanted]).to_pylist()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; give the path of a file of captions") from None
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path}: damaged or not Parquet ({str(error).splitlines()[0]})") from None
    for number, row in enumerate(rows):
        yield _record(f"{path}, row {number}", row, names)


def _without_bytes(schema: Any, name: str) -> str:
    """A column, or of pictures in a struct only their paths."""
    import pyarrow

    kind = schema.field(name).type
    return f"{name}.path" if pyarrow.types.is_struct(kind) and kind.get_field_index("path") >= 0 else name


def _from_lines(path: Path, text: str, tabs: bool) -> Iterator[_Entry]:
    lines = text.removesuffix("\n").split("\n")
    tokens = [_TOKEN_LINE.match(line) for line in lines]
    if all(tokens):
        for match in tokens:
            assert match is not None
            yield _Entry(match["id"], "", [_clean(match["text"])])
        return
    parts = [line.split("\t") for line in lines]
    if all(len(part) > 1 and _PICTURE_NAME.match(part[0]) for part in parts):
        for part in parts:
            yield _Entry("", part[0], [_clean(text) for text in part[1:]])
        return
    for number, part in enumerate(parts, 1):
        if len(part) > 1 and not tabs:
            raise UsageError(f"{path}, line {number}: has a tab; expected one caption a line (is this the references?)")
        yield _Entry("", "", [_clean(text) for text in part])


def _record(where: str, record: Any, names: Sequence[str]) -> _Entry:
    if isinstance(record, str | list):  # a list of texts, or a pipeline's [{"generated_text"}] for each picture
        return _Entry("", "", _texts(where, record, record))
    if not isinstance(record, dict):
        raise UsageError(f"{where}: is a {type(record).__name__}; expected {{'id': …, 'caption': …}}")
    if not find_key(names, record):
        raise UsageError(f"{where}: has no text; expected 'caption', found {sorted(map(str, record))}")
    document = record.get("doc")  # lmms-eval keeps the data set's own record beside its running number
    inner = document if isinstance(document, dict) else {}
    key = record_id(inner, where) or record_id(record, where)
    return _Entry(key, picture_path(record) or picture_path(inner), _texts(where, record, _text_value(names, record)))


def _text_value(names: Sequence[str], record: dict[str, Any]) -> Any:
    """What stands under the first of the names; an empty text counts, an empty list does not."""
    values = [record[key] for name in names if (key := find_key((name,), record))]
    return next((value for value in values if value is not None and value != []), None)


def _texts(where: str, holder: Any, value: Any) -> list[str]:
    """The cleaned texts of a value. One that is not there, or empty, is an empty caption of its ``holder``."""
    found = [_clean(text) for text in caption_texts(value, where)]
    return found or ([""] if isinstance(holder, dict | str) else [])


def _clean(text: str) -> str:
    return " ".join(clean_text(text).split())
