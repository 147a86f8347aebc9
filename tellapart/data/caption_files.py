"""Reading files of captions and of references, in the layouts that are found in the wild.

| layout | captions | references |
|---|---|---|
| JSON lines | ``{"id" or "image_id", "caption"}`` | ``{"id", "references" or "captions"}``, or one caption a line |
| JSON list | COCO results: ``[{"image_id", "caption"}]`` | the same, an id as often as it has references |
| JSON object | ``{id: text}`` or ``{id: [texts]}`` | the same |
| COCO annotations | ``{"annotations": [{"image_id", "caption"}]}`` | the same |
| Karpathy | | ``{"images": [{"cocoid" or "filename", "sentences": [{"raw"}]}]}`` |
| CSV (``.csv``) | header ``id,caption`` | the same |
| Flickr8k tokens | ``name#k<TAB>caption`` | the same |
| plain text | one caption a line | references of a line separated by tabs |

Ids are strings everywhere; a line of plain text has its number, from "1", as its id.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tellapart.errors import UsageError
from tellapart.utils.json_text import parse_json

_ID_KEYS = ("id", "image_id")
_TEXT_KEYS = ("caption", "captions", "references")
_TOKEN_LINE = re.compile(r"^(?P<id>[^\t]+)#\d+\t(?P<text>.*)$")
_SHOWN = 3  # offending ids named in a message


def read_captions(path: str | Path) -> dict[str, str]:
    """One caption per id. Raises `UsageError` where the file has an id twice (see `read_caption_lists`)."""
    captions = read_caption_lists(path)
    doubles = [key for key, texts in captions.items() if len(texts) > 1]
    if doubles:
        raise UsageError(
            f"{path}: {len(doubles)} ids have several captions ({some(doubles)}); expected one caption for each id"
        )
    return {key: texts[0] for key, texts in captions.items()}


def read_caption_lists(path: str | Path) -> dict[str, list[str]]:
    """Every caption of every id, in the order of the file; plain text is one caption a line."""
    return _collect(_rows(Path(path), tabs=False))


def read_references(path: str | Path) -> dict[str, list[str]]:
    """The references of every id, in the order of the file; plain text has them separated by tabs."""
    return _collect(_rows(Path(path), tabs=True))


@dataclass(frozen=True)
class Aligned:
    """Captions and references over the same ids, and what had to be left out for that."""

    captions: dict[str, str]
    references: dict[str, list[str]]
    notes: list[str] = field(default_factory=list)


def align(
    captions: Mapping[str, str | Sequence[str]],
    references: Mapping[str, Sequence[str]],
    allow_missing: bool = False,
    name: str = "captions",
) -> Aligned:
    """The captions and references of the ids that both have, in the order of the references.

    An id on one side only, an id with several captions, an empty caption and an id without a
    reference are each counted and named: `UsageError`, or a note with ``allow_missing``. Then of
    several captions the first counts, an empty caption stays (it is what the system said), and an
    id on one side only is left out.
    """
    told = {key: [text for text in texts if text.strip()] for key, texts in references.items()}
    empty = [key for key, texts in told.items() if not texts]
    notes = problems({"references have no text": empty}, "references", allow_missing)
    told = {key: texts for key, texts in told.items() if texts}
    kept, more = align_ids(captions, told, allow_missing, name, "the references")
    return Aligned(kept, {key: told[key] for key in kept}, notes + more)


def align_ids(
    captions: Mapping[str, str | Sequence[str]],
    known: Iterable[str],
    allow_missing: bool = False,
    name: str = "captions",
    other: str = "the data",
) -> tuple[dict[str, str], list[str]]:
    """One caption for each of the known ids, in their order, and notes on what did not match (see `align`)."""
    lists, notes = _aligned(captions, known, allow_missing, name, other, most=1)
    return {key: texts[0] for key, texts in lists.items()}, notes


def align_lists(
    captions: Mapping[str, str | Sequence[str]],
    known: Iterable[str],
    allow_missing: bool = False,
    name: str = "captions",
    other: str = "the data",
) -> tuple[dict[str, list[str]], list[str]]:
    """As `align_ids`, with all captions of an id where every id has equally many; a note says how many.

    Ids with more captions than others are trouble; with ``allow_missing`` as many count as every id has.
    """
    return _aligned(captions, known, allow_missing, name, other, most=None)


def _aligned(
    captions: Mapping[str, str | Sequence[str]],
    known: Iterable[str],
    allow_missing: bool,
    name: str,
    other: str,
    most: int | None,
) -> tuple[dict[str, list[str]], list[str]]:
    lists = {key: [text] if isinstance(text, str) else list(text) for key, text in captions.items()}
    ids = list(dict.fromkeys(known))
    both = [key for key in ids if lists.get(key)]
    if not both:
        raise UsageError(
            f"{name}: none of its ids is in {other} (captions: {some(lists)}; {other}: {some(ids)}); "
            "give files that use the same ids"
        )
    inside = set(ids)
    each = most or min(len(lists[key]) for key in both)
    more = "several" if each == 1 else f"more than {each}"
    found = {
        f"captions are of no picture in {other}": [key for key in lists if key not in inside],
        f"pictures of {other} have no caption": [key for key in ids if not lists.get(key)],
        f"ids have {more} captions": [key for key, texts in lists.items() if len(texts) > each],
        "captions are empty": [
            key for key, texts in lists.items() if texts and not all(text.strip() for text in texts[:each])
        ],
    }
    notes = problems(found, name, allow_missing)
    if each > 1:
        notes.append(f"{name}: {each} captions of each picture; a metric of one caption is the mean over them")
    return {key: lists[key][:each] for key in both}, notes


def problems(found: Mapping[str, Sequence[str]], name: str, allowed: bool) -> list[str]:
    """A line for each kind of trouble that some ids have; `UsageError` with all of them unless ``allowed``."""
    lines = [f"{name}: {len(keys)} {what} ({some(keys)})" for what, keys in found.items() if keys]
    if lines and not allowed:
        raise UsageError("; ".join(lines) + "; mend the files, or add --allow-missing to score what is left")
    return lines


def some(keys: Iterable[str]) -> str:
    """The first few ids, for a message."""
    shown = list(keys)
    more = len(shown) - _SHOWN
    return ", ".join(repr(key) for key in shown[:_SHOWN]) + (f" and {more} more" if more > 0 else "") or "none"


def _collect(rows: Iterable[tuple[str, list[str]]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, texts in rows:
        found.setdefault(key, []).extend(texts)
    return found


def _rows(path: Path, *, tabs: bool) -> list[tuple[str, list[str]]]:
    """Pairs of id and texts, whatever the layout. A layout is known by its content, CSV by its name."""
    text = _read(path)
    start = text.lstrip()[:1]
    if path.suffix.lower() == ".csv":
        rows = list(_from_csv(path, text))
    elif path.suffix.lower() == ".jsonl" or (start == "{" and _is_json_lines(text)):
        rows = list(_from_json_lines(path, text))
    elif path.suffix.lower() == ".json" or start in ("[", "{"):
        rows = list(_from_json(path, _parse(path, text)))
    else:
        rows = list(_from_lines(path, text, tabs))
    if not rows:
        raise UsageError(f"{path}: has no captions; expected at least one")
    return rows


def _read(path: Path) -> str:
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; expected a file of captions (JSON, JSONL, CSV or text)")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; give the path of a file of captions") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not text in UTF-8; give a file of captions (JSON, JSONL, CSV or text)") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    if not text.strip():
        raise UsageError(f"{path}: is empty; expected at least one caption")
    return text


def _is_json_lines(text: str) -> bool:
    """A first line that is a whole JSON object, with something after it."""
    first, _, rest = text.strip().partition("\n")
    try:
        return isinstance(json.loads(first), dict) and bool(rest.strip())
    except ValueError:
        return False


def _parse(path: Path, text: str, line: int = 0) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        at = line or getattr(error, "lineno", 0)
        raise UsageError(f"{path}, line {at}: is not JSON ({getattr(error, 'msg', error)})") from None


def _from_json_lines(path: Path, text: str) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _record(f"{path}, line {number}", _parse(path, line, number))


def _from_json(path: Path, data: Any) -> Iterator[tuple[str, list[str]]]:
    if isinstance(data, dict) and isinstance(data.get("annotations"), list):
        data = data["annotations"]
    elif isinstance(data, dict) and isinstance(data.get("images"), list):
        yield from _from_karpathy(path, data["images"])
        return
    elif isinstance(data, dict) and any(key in data for key in _ID_KEYS) and any(key in data for key in _TEXT_KEYS):
        data = [data]  # a JSONL file of one line
    if isinstance(data, dict):
        for key, value in data.items():
            yield str(key), _texts(f"{path}, id {key!r}", value)
    elif isinstance(data, list):
        for number, record in enumerate(data, 1):
            yield _record(f"{path}, entry {number}", record)
    else:
        raise UsageError(f"{path}: holds a {type(data).__name__}; expected a list of records or an object of captions")


def _from_karpathy(path: Path, images: list[Any]) -> Iterator[tuple[str, list[str]]]:
    for number, image in enumerate(images, 1):
        where = f"{path}, image {number}"
        if not isinstance(image, dict) or not isinstance(image.get("sentences"), list):
            raise UsageError(f"{where}: has no 'sentences'; expected Karpathy's JSON, or COCO's with 'annotations'")
        key = next((image[name] for name in ("cocoid", "filename", "imgid") if name in image), None)
        if key is None:
            raise UsageError(f"{where}: has neither 'cocoid' nor 'filename' nor 'imgid'")
        yield str(key), [_text(where, sentence.get("raw")) for sentence in image["sentences"]]


def _from_csv(path: Path, text: str) -> Iterator[tuple[str, list[str]]]:
    reader = csv.DictReader(io.StringIO(text), restkey="")
    names = [name.strip() for name in reader.fieldnames or ()]
    if not set(names) & set(_ID_KEYS) or "caption" not in names:
        raise UsageError(f"{path}: the header is '{','.join(names)}'; expected the columns 'id' and 'caption'")
    reader.fieldnames = names
    for record in reader:
        where = f"{path}, line {reader.line_num}"
        if "" in record:
            raise UsageError(f"{where}: has more fields than the header; put captions with commas in double quotes")
        yield _record(where, record)


def _from_lines(path: Path, text: str, tabs: bool) -> Iterator[tuple[str, list[str]]]:
    lines = text.removesuffix("\n").split("\n")
    tokens = [_TOKEN_LINE.match(line) for line in lines]
    if all(tokens):
        for match in tokens:
            assert match is not None
            yield match["id"], [match["text"].strip()]
        return
    for number, line in enumerate(lines, 1):
        if "\t" in line and not tabs:
            raise UsageError(f"{path}, line {number}: has a tab; expected one caption a line (is this the references?)")
        yield str(number), [part.strip() for part in line.split("\t")]


def _record(where: str, record: Any) -> tuple[str, list[str]]:
    if not isinstance(record, dict):
        raise UsageError(f"{where}: is not an object; expected {{'id': …, 'caption': …}}")
    # COCO annotations have both: "id" is then the annotation's own, "image_id" the picture's.
    key = record.get("image_id", record.get("id"))
    if key is None or key == "" or isinstance(key, (dict, list, bool, float)):
        raise UsageError(f"{where}: has no id; expected 'id' or 'image_id', found {sorted(map(str, record))}")
    name = next((name for name in _TEXT_KEYS if name in record), None)
    if name is None:
        raise UsageError(f"{where}: has no text; expected 'caption', found {sorted(map(str, record))}")
    return str(key), _texts(where, record[name])


def _texts(where: str, value: Any) -> list[str]:
    return [_text(where, text) for text in value] if isinstance(value, list) else [_text(where, value)]


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{where}: the caption is a {type(value).__name__}; expected text")
    return " ".join(value.split())
