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
| CSV, TSV, Parquet, ``.xlsx`` (first sheet) | columns of the same names; two columns without a header: id and caption |
| Flickr8k's and Flickr30k's tokens | ``name#k<TAB>caption`` |
| lines of a file name or a number, and a caption | ``x.jpg,a dog``, ``x.jpg a dog``, ``391895<TAB>a dog`` |
| GIT's and VinVL's TSV | ``key<TAB>[{"caption": "a dog"}]`` |
| plain text | one caption a line; references of a line separated by tabs |
| a folder | a ``.txt``, else a ``.caption``, else a ``.json`` for each picture |

Of a record with captions of people and of a model, `read_caption_file` takes the model's and `read_reference_file` the
people's. Ids are strings everywhere; a record without an id is called after its picture's file; one that has neither
has its number, from "1", as its id. A text that is a list or dictionary, as JSON, Python or NumPy writes it, is read as
that; where it cannot be, or is a file name, the file is refused. Files may be compressed (``captions.json.gz``).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tellapart.data.base import plain_suffix, read_bytes, refuse_unread
from tellapart.data.caption_json import is_json_lines, read_json_lines, read_json_text
from tellapart.data.caption_records import CaptionEntry, texts_in
from tellapart.data.caption_tables import has_header, read_excel, read_parquet, read_table
from tellapart.data.records import GENERATED_KEYS, ID_KEYS, MEDIA, REFERENCE_KEYS, is_file_name
from tellapart.errors import UsageError
from tellapart.utils.messages import say
from tellapart.utils.text import clean_text

_KEYED_LINES = (
    re.compile(r"(?P<key>[^\t]+)#\d+\t(?P<text>.*)"),  # Flickr8k's and Flickr30k's tokens
    re.compile(rf"(?P<key>\d+|\S[^\t,;|]*\.{MEDIA})(?:#\d+)? *[,;|\t](?P<text>.*)", re.IGNORECASE),
    re.compile(rf"(?P<key>\S+\.{MEDIA})(?:#\d+)? +(?P<text>.*)", re.IGNORECASE),
    re.compile(r"""(?P<key>[^\t]+)\t(?P<text> *[\[{] *["'\[{].*)"""),  # GIT's and VinVL's key and JSON
)
_COMMENT_NUMBER = re.compile(r" *\d+ *[,;|\t]")  # Flickr30k's "x.jpg| 0| a dog"
_QUOTED = re.compile(r'\s*"((?:[^"]|"")*)"\s*')
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
    suffix = plain_suffix(path)
    if suffix in (".parquet", ".pq"):
        return read_parquet(path, names)
    if suffix in (".xlsx", ".xlsm"):
        return read_excel(path, names)
    refuse_unread(path)
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
        data = read_bytes(path)
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


def metadata_files(folder: Path) -> list[Path]:
    """Hugging Face's lists of pictures in ``folder`` and below it, one of each folder; hidden ones are passed over."""
    found: dict[Path, Path] = {}
    for name in METADATA_FILES:
        for file in sorted(folder.rglob(name)):
            if not any(part.startswith(".") for part in file.relative_to(folder).parts):
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


def _read_folder(folder: Path, names: Sequence[str], tabs: bool) -> Iterator[CaptionEntry]:
    """A folder with Hugging Face's metadata, or with a text beside each picture, whose lines are captions."""
    if metadata_files(folder):
        yield from read_metadata(folder, names)
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
            texts = texts_in(str(file), None, [line for line in _read(file).split("\n") if line.strip()])
        yield CaptionEntry(file.relative_to(folder).with_suffix("").as_posix(), "", texts)


def _read_lines(path: Path, text: str, tabs: bool) -> Iterator[CaptionEntry]:
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
