"""Reads caption files and reference files in the layouts that common programs write.

| layout | looks like |
|---|---|
| JSON lines, a JSON list of records | ``{"id" or "image_id", "caption"}``, and the names in `data.record_keys` |
| COCO results | ``[{"image_id", "caption"}]`` |
| COCO annotations | ``{"images": [{"id", "file_name"}], "annotations": [{"image_id", "caption"}]}`` |
| Karpathy | ``{"images": [{"cocoid" or "filename", "sentences": [{"raw"}]}]}`` |
| JSON pairs | ``[["x.jpg", "a dog"]]``, ``[[391895, "a dog"]]`` |
| JSON object | ``{id: text}``, ``{id: [texts]}``, ``{id: [{"caption"}]}`` |
| Hugging Face's ``metadata.jsonl`` or ``.csv``, or a folder that contains them | ``{"file_name", "text"}`` |
| a pipeline's output | ``[{"generated_text"}]`` or ``[[{"generated_text"}]]``, in the order of the pictures |
| LLaVA's answers, LLaVA's training data | ``{"question_id", "text"}``; ``{"id", "image", "conversations"}`` |
| lmms-eval's samples | ``{"doc_id", "target", "filtered_resps", "resps"}`` |
| a batch from OpenAI's, Anthropic's or Gemini's server | ``{"custom_id", "response": {"body": {"choices": …}}}``, … |
| Label Studio | ``{"data": {"image"}, "annotations": [{"result": [{"value": {"text"}}]}]}``; its short form |
| exiftool's JSON and CSV | ``{"SourceFile", "AltTextAccessibility" or "XMP:Description" …}``; the text may be missing |
| CSV, TSV, Parquet, ``.xlsx`` (first sheet) | columns of the same names; two columns without a header: id and caption |
| Flickr8k's and Flickr30k's tokens | ``name#k<TAB>caption`` |
| lines with a file name or number, and a caption | ``x.jpg,a dog``, ``x.jpg a dog``, ``391895<TAB>a dog`` |
| GIT's and VinVL's TSV | ``key<TAB>[{"caption": "a dog"}]`` |
| plain text | one caption per line; several references per line, separated by tabs |
| a folder | a ``.txt``, ``.caption`` or ``.json`` (the first that exists) for each picture |

If a record has both human and model captions, `read_caption_file` reads the model's captions, and
`read_reference_file` reads the human captions. Ids are always strings: the record's id or, if it has none, the name of
its picture file or its number, counting from "1". A text that JSON, Python or NumPy wrote as a list or dictionary is
parsed. A reference that looks like a file name, or like a list but cannot be parsed, is rejected. A model's caption of
this kind is kept as text and reported, unless at least half of the captions in the file are of this kind and
``tellapart caption`` did not write the file. Captions that VizWiz marks
``is_rejected`` or ``is_precanned`` are ignored, counted and reported. Files may be compressed
(``captions.json.gz``).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tellapart.data.caption_entries import CaptionEntry, entry_of, texts_in
from tellapart.data.caption_file import CaptionFile
from tellapart.data.caption_json import json_entries
from tellapart.data.caption_lines import read_lines
from tellapart.data.caption_values import CaptionText
from tellapart.data.dropped import counting_dropped
from tellapart.data.file_names import is_file_name
from tellapart.data.file_patterns import files_below
from tellapart.data.record_keys import GENERATED_KEYS, ID_KEYS, REFERENCE_KEYS
from tellapart.data.sidecars import lines_in, say_ignored, sidecars, texts_beside, without_foreign
from tellapart.data.tables import EXCEL_SUFFIXES, PARQUET_SUFFIXES, has_header, table_records
from tellapart.data.text_files import (
    is_json_lines,
    json_lines,
    parsed_json,
    plain_suffix,
    read_nonempty,
    read_text,
    refuse_unread,
)
from tellapart.errors import UsageError
from tellapart.utils.listed_names import few
from tellapart.utils.messages import say, say_once
from tellapart.utils.untrusted_text import clean_text

_BESIDE = (".txt", ".caption", ".json")  # suffixes of files next to pictures; the first one found in a folder is used
_ARROW = (
    "Arrow files are not supported; save the file as Parquet, in Python: import pandas; "
    "pandas.read_feather('FILE').to_parquet('captions.parquet')"
)
_NOT_TEXT = {
    ".tar": ("a WebDataset contains pictures; pass it with --data, and a caption file (JSON, JSONL, CSV, …) here"),
    ".xml": "XML is not supported; export the captions as JSON, JSONL, CSV, Parquet or text",
    ".bz2": "only .gz files are decompressed; run: bunzip2 -k FILE, and pass the result",
    ".xz": "only .gz files are decompressed; run: unxz -k FILE, and pass the result",
    ".zst": "only .gz files are decompressed; run: unzstd FILE, and pass the result",
    ".feather": _ARROW,
    ".arrow": _ARROW,
    ".xls": "Excel's old .xls format is not supported; save the file as .xlsx or .csv",
}
METADATA_FILES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")


def read_caption_file(path: str | Path) -> CaptionFile:
    """Reads generated captions by id (see the module for layouts). Raises `UsageError`."""
    path = Path(path)
    as_written = path.with_name(f"{path.name}.settings.json").is_file()  # ``tellapart caption`` wrote the file
    return _collect(path, _entries(path, GENERATED_KEYS, tabs=False), 1.0 if as_written else 0.5)


def read_reference_file(path: str | Path) -> CaptionFile:
    """Reads references by id. Raises `UsageError`."""
    return _collect(Path(path), _entries(Path(path), REFERENCE_KEYS, tabs=True), 0.0)


def _collect(path: Path, entries: Iterable[CaptionEntry], most_unread: float) -> CaptionFile:
    """Collects the texts of all entries.

    ``most_unread``: if at least this fraction of the texts cannot be parsed (`CaptionText.error`), raises `UsageError`.
    Otherwise, or if the fraction is 1, keeps these texts as plain text and reports them.
    """
    file = CaptionFile(str(path), {})
    failures: dict[str, str] = {}
    unread: list[tuple[str, CaptionText]] = []
    number = bare = 0
    with counting_dropped(str(path)) as dropped:
        for number, entry in enumerate(entries, start=1):
            key = clean_text(entry.id or entry.file or str(number))
            if entry.failure:
                failures[key] = entry.failure
                continue
            bare += not (entry.id or entry.file)
            file.texts.setdefault(key, []).extend(text.text for text in entry.texts if not text.flag)
            for text in entry.texts:
                if text.flag:
                    dropped.add(text.flag, repr(key))
                elif text.error:
                    unread.append((key, text))
            if entry.file:
                file.files.setdefault(key, entry.file)
            if entry.split:
                file.splits.setdefault(key, entry.split)
    # a failed request can have an answer in a later line
    if lost := [f"{key!r} ({why})" for key, why in failures.items() if key not in file.texts]:
        found = f"{path}: {len(lost):,} of {number:,} lines contain no complete answer: {few(lost)}"
        if not file.texts:
            raise UsageError(f"{found}; expected at least one caption")
        say(f"{found}; only the other lines are used")
    if not file.texts:
        raise UsageError(f"{path} contains no captions; expected at least one")
    if unread:
        (first, text), count = unread[0], sum(map(len, file.texts.values()))
        if most_unread < 1 and len(unread) >= most_unread * count and text.error:
            raise text.error
        say_once(
            f"{path}: {len(unread):,} of {count:,} captions look like lists or file names but are "
            f"used as plain text (first: {first!r}): {text.text[:60]!r}"
        )
    if 0 < bare < number:
        raise UsageError(
            f"{path}: {bare} of {number} records have no id; expected every record to have one of "
            f"{', '.join(ID_KEYS[:5])}, …"
        )
    return replace(file, numbered=bool(bare))


def _entries(path: Path, names: Sequence[str], *, tabs: bool) -> Iterator[CaptionEntry]:
    """Yields the entries of a file. Infers the layout from the content and, for Parquet and tables, from the suffix."""
    if path.is_dir():
        return _read_folder(path, names, tabs)
    suffix = plain_suffix(path)
    refuse_unread(path)
    if suffix in _NOT_TEXT:
        raise UsageError(f"{path}: {_NOT_TEXT[suffix].replace('FILE', str(path))}")
    text = "" if suffix in EXCEL_SUFFIXES + PARQUET_SUFFIXES else read_nonempty(path)
    is_json = text.lstrip()[:1] in ("[", "{")
    if not text or suffix in (".csv", ".tsv") or (not is_json and has_header(path, text, names)):
        records = table_records(path, text, names)
    elif suffix in (".jsonl", ".ndjson") or (is_json and is_json_lines(text)):
        records = json_lines(path, text)
    elif suffix == ".json" or is_json:
        return json_entries(path, parsed_json(text, str(path)), names)
    else:
        return read_lines(path, text, tabs)
    return (entry_of(where, record, names) for where, record in records)


def metadata_files(folder: Path) -> list[Path]:
    """Returns Hugging Face's metadata files in and below ``folder``, one per folder. Skips hidden and empty files.

    A file is empty if all of its captions were undone.
    """
    found: dict[Path, Path] = {}
    for name in METADATA_FILES:
        for file in files_below(folder, f"**/{name}"):
            if file.stat().st_size:
                found.setdefault(file.parent, file)
    return list(found.values())


def read_metadata(folder: Path, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """Yields the entries of Hugging Face's metadata files; paths are relative to ``folder``. Raises `UsageError`."""
    lists = metadata_files(folder)
    for file in lists:
        for entry in _entries(file, names, tabs=False):
            if not (name := entry.file or entry.id):
                raise UsageError(f"{file}: a row has no 'file_name'; every row needs one")
            path = posixpath.join(file.parent.relative_to(folder).as_posix(), name.replace("\\", "/"))
            # ids may restart in each list
            yield replace(entry, file=posixpath.normpath(path), id=entry.id if len(lists) == 1 else "")


def _read_folder(folder: Path, names: Sequence[str], tabs: bool) -> Iterator[CaptionEntry]:
    """Reads a folder with Hugging Face's metadata, or with a text file next to each picture (`texts_beside`)."""
    if metadata_files(folder):
        yield from read_metadata(folder, names)
        return
    inside = [file.relative_to(folder).as_posix() for file in files_below(folder, "**/*")]
    texts = [name for name in inside if name.lower().endswith(_BESIDE)]
    chosen = list(dict.fromkeys(sidecars(filter(is_file_name, inside), texts, _BESIDE).values()))
    if chosen:
        say_ignored(folder, texts, chosen)
    for suffix in _BESIDE:  # a folder with captions only
        chosen = chosen or [name for name in without_foreign(texts) if name.lower().endswith(suffix)]
    if not chosen:
        raise UsageError(
            f"{folder} contains no {', '.join(METADATA_FILES)}, {', '.join(_BESIDE[:-1])} or "
            f"{_BESIDE[-1]}; expected a file of captions"
        )
    contents = {name: read_text(folder / name) for name in chosen}
    lines = lines_in(text for name, text in contents.items() if not name.lower().endswith(".json"))
    for name, text in contents.items():
        file, captions = folder / name, [CaptionText("")]  # empty if the captioner produced no text
        if text.strip() and name.lower().endswith(".json"):
            entries = json_entries(file, parsed_json(text, str(file)), names)
            captions = [caption for entry in entries for caption in entry.texts]
        elif text.strip():
            captions = texts_in(str(file), texts_beside(text, lines))
        yield CaptionEntry(posixpath.splitext(name)[0], "", captions)
