"""Readers of caption files and reference files, in the layouts that common programs write.

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
| a batch of OpenAI's, Anthropic's, Gemini's server | ``{"custom_id", "response": {"body": {"choices": …}}}``, … |
| Label Studio | ``{"data": {"image"}, "annotations": [{"result": [{"value": {"text"}}]}]}``; its short form |
| CSV, TSV, Parquet, ``.xlsx`` (first sheet) | columns of the same names; two columns without a header: id and caption |
| Flickr8k tokens | ``name#k<TAB>caption`` |
| plain text | one caption a line; references of a line separated by tabs |
| a folder | a ``.txt``, else a ``.caption``, else a ``.json`` for each picture |

Of a record with captions of people and of a model, `read_caption_file` takes the model's and `read_reference_file` the
people's. Ids are strings everywhere; a record without an id is called after its picture's file; one that has neither
has its number, from "1", as its id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tellapart.data.caption_json import is_json_lines, read_json_lines, read_json_text
from tellapart.data.caption_records import CaptionEntry, clean_line
from tellapart.data.caption_tables import has_header, read_excel, read_parquet, read_table
from tellapart.data.records import (
    GENERATED_KEYS,
    ID_KEYS,
    REFERENCE_KEYS,
)
from tellapart.errors import UsageError
from tellapart.utils.messages import say
from tellapart.utils.text import clean_text

_TOKEN_LINE = re.compile(r"^(?P<id>[^\t]+)#\d+\t(?P<text>.*)$")
_PICTURE_NAME = re.compile(r"^\S.*\.(jpe?g|png|webp|gif|bmp|tiff?|mp4|avi|webm|mov|mkv)$", re.IGNORECASE)
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")  # Excel's "Unicode text"
_BESIDE = (".txt", ".caption", ".json")  # beside pictures, the first that a folder has
_NOT_TEXT = {
    ".tar": "a WebDataset holds pictures: give it with --data, and here a file of captions (JSON, JSONL, CSV, …)",
    ".xml": "XML is not read here; export a file of captions as JSON, JSONL, CSV, Parquet or text",
    ".xls": "Excel's old format is not read here; save it as .xlsx or .csv",
}
METADATA_FILES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
MAX_SHOWN = 3  # offending ids named in a message


@dataclass(frozen=True)
class CaptionFile:
    """Texts by id, in the order of the file.

    ``files`` and ``splits`` have the picture's file and the split of an id as the file names them, where it does.
    ``numbered``: the ids are places in the file, from "1".
    """

    name: str
    texts: dict[str, list[str]]
    files: dict[str, str] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)
    numbered: bool = False


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
    return _collect(Path(path), _entries(Path(path), GENERATED_KEYS, tabs=False))


def read_reference_file(path: str | Path) -> CaptionFile:
    """References by id. Raises `UsageError`."""
    return _collect(Path(path), _entries(Path(path), REFERENCE_KEYS, tabs=True))


def preview_ids(keys: Iterable[str]) -> str:
    """The first few ids, for a message."""
    shown = list(keys)
    more = len(shown) - MAX_SHOWN
    return ", ".join(repr(key) for key in shown[:MAX_SHOWN]) + (f" and {more} more" if more > 0 else "") or "none"


def _collect(path: Path, entries: Iterable[CaptionEntry]) -> CaptionFile:
    texts: dict[str, list[str]] = {}
    files: dict[str, str] = {}
    splits: dict[str, str] = {}
    failures: dict[str, str] = {}
    bare = 0
    for number, entry in enumerate(entries, start=1):
        key = clean_text(entry.id or entry.file or str(number))
        if entry.failure:
            failures[key] = entry.failure
            continue
        bare += not (entry.id or entry.file)
        texts.setdefault(key, []).extend(entry.texts)
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
    if 0 < bare < number:
        raise UsageError(
            f"{path}: {bare} of {number} records have no id; expected one of {', '.join(ID_KEYS[:5])}, … in all"
        )
    return CaptionFile(str(path), texts, files, splits, numbered=bool(bare))


def _entries(path: Path, names: Sequence[str], *, tabs: bool) -> Iterator[CaptionEntry]:
    """The entries of a file, whatever its layout, which its content says; Parquet and tables also its suffix."""
    if path.is_dir():
        return _read_folder(path, names, tabs)
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        return read_parquet(path, names)
    if suffix in (".xlsx", ".xlsm"):
        return read_excel(path, names)
    if suffix in _NOT_TEXT:
        raise UsageError(f"{path}: {_NOT_TEXT[suffix]}")
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
    try:
        data = path.read_bytes()
        text = data.decode("utf-16" if data.startswith(_UTF16_MARKS) else "utf-8-sig")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
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


def _read_folder(folder: Path, names: Sequence[str], tabs: bool) -> Iterator[CaptionEntry]:
    """A folder with Hugging Face's metadata, or with a text beside each picture, whose lines are captions."""
    for name in METADATA_FILES:
        if (folder / name).is_file():
            yield from _entries(folder / name, names, tabs=tabs)
            return
    files = next((found for suffix in _BESIDE if (found := sorted(folder.rglob(f"*{suffix}")))), [])
    if not files:
        raise UsageError(
            f"{folder}: a folder without {', '.join(METADATA_FILES)}, {', '.join(_BESIDE[:-1])} or {_BESIDE[-1]}; "
            "expected a file of captions"
        )
    for file in files:
        if not file.read_bytes().strip():
            texts = [""]  # what a system wrote there
        elif file.suffix == ".json":
            texts = [text for entry in read_json_text(file, _read(file), names) for text in entry.texts]
        else:
            texts = [clean_line(line) for line in _read(file).split("\n") if line.strip()]
        yield CaptionEntry(file.relative_to(folder).with_suffix("").as_posix(), "", texts)


def _read_lines(path: Path, text: str, tabs: bool) -> Iterator[CaptionEntry]:
    lines = text.removesuffix("\n").split("\n")
    tokens = [_TOKEN_LINE.match(line) for line in lines]
    if all(tokens):
        for match in tokens:
            assert match is not None
            yield CaptionEntry(match["id"], "", [clean_line(match["text"])])
        return
    parts = [line.split("\t") for line in lines]
    if all(len(part) > 1 and _PICTURE_NAME.match(part[0]) for part in parts):
        for part in parts:
            yield CaptionEntry("", part[0], [clean_line(text) for text in part[1:]])
        return
    for number, part in enumerate(parts, 1):
        if len(part) > 1 and not tabs:
            raise UsageError(f"{path}, line {number}: has a tab; expected one caption a line (is this the references?)")
        yield CaptionEntry("", "", [clean_line(text) for text in part])
