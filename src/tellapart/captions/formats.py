"""Writes captions as JSON lines, CSV or plain text, and reads these formats."""

from __future__ import annotations

import csv
import io
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tellapart.captions.marks import MARKS, marks_in
from tellapart.captions.written import Written
from tellapart.data.pictures import FilePicture
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.strict_json import json_text, parse_json
from tellapart.utils.terminal_text import for_terminal

CAPTION_FORMATS = ("jsonl", "csv", "txt")
LOG = "log"  # pseudo-format: captions are written to the log, from which other texts are made later
PRINTED = Path("-")  # pseudo-file: standard output
METADATA = "metadata.jsonl"  # Hugging Face's list of the pictures in a folder, by file name


def text_lines(written: Written) -> str:
    """Returns only the captions of a picture, one per line."""
    return "".join(f"{for_terminal(text)}\n" for text in written.texts)


def csv_header(scored: bool) -> str:
    return "id,caption,score\n" if scored else "id,caption\n"


def csv_line(written: Written, columns: Sequence[str] = ()) -> str:
    """Returns a picture's line for a ``.csv`` file.

    columns: the file's columns: the id, the caption and others, of which only ``score`` is filled in. Default: the
        columns of `csv_header`.
    """
    score = [f"{written.candidates[0][1]:.6g}"] if written.candidates else []
    rest = ["".join(score) if name == "score" else "" for name in columns[2:]] if columns else score
    return csv_row([_one_line(written.item.id), written.caption, *rest])


def name_in(item: Item, folder: Path) -> str:
    """Returns the path of a picture relative to a folder, with forward slashes.

    Raises `UsageError` if the picture is not a file, or if its name is not valid UTF-8 and cannot be stored.
    """
    if not isinstance(item.picture, FilePicture):
        raise UsageError(
            f"{item.picture.name} is not a file, but metadata.jsonl requires file names; use -o captions.jsonl"
        )
    name = Path(os.path.relpath(item.picture.path, folder)).as_posix()
    if name.encode("utf-8", "ignore").decode() != name:
        raise UsageError(
            f"{item.picture.name}: the file name is not valid UTF-8, as metadata.jsonl requires; rename the file"
        )
    return name


def json_line(written: Written, folder: Path | None = None) -> str:
    """Returns a picture's line for a ``.jsonl`` file, or for `METADATA` in a ``folder``.

    Raises the same errors as `name_in`.
    """
    record: dict[str, Any] = {"id": written.item.id}
    if written.structured is not None:
        record |= {"caption": written.caption} if "caption" in written.structured else {}
        record["structured"] = written.structured
    elif folder is not None:
        record |= {"file_name": name_in(written.item, folder), "text": written.caption}
    else:
        record |= {"captions": written.samples} if len(written.samples) > 1 else {"caption": written.caption}
    if written.candidates:
        record["score"] = round(written.candidates[0][1], 6)
        record["candidates"] = [{"caption": text, "score": round(score, 6)} for text, score in written.candidates]
    if written.claims:
        record["claims"] = written.claims
    return json_text(record) + "\n"


def structured_text(record: Mapping[str, Any]) -> str | None:
    """Returns a line's structured caption as JSON, or None if the line has no structured caption.

    Inserts the line's ``caption``, because a person may have edited only that field.
    """
    value = record.get("structured")
    if not isinstance(value, dict):
        return None
    return json_text({**value, "caption": record["caption"]} if "caption" in value and "caption" in record else value)


class CaptionLine(NamedTuple):
    """One line in a file of captions.

    text: its captions, one per line.
    line: the raw line.
    marks: the `MARKS` in the line: that a person accepted the caption, or that its picture needs none.
    """

    id: str
    text: str
    line: str
    marks: tuple[str, ...] = ()


def caption_lines(text: str, format: str, path: Path) -> Iterator[CaptionLine]:
    """Yields the lines in a file of captions, without a CSV header. Raises `UsageError` for invalid lines."""
    lines: Any = csv.reader(io.StringIO(text, newline="")) if format == "csv" else io.StringIO(text, newline="")
    header: list[str] = []
    for number, line in enumerate(lines, start=1):
        if format == "csv" and number == 1:
            header = line
            continue
        if not line:
            continue
        try:
            if format == "csv":
                marks = marks_in(dict(zip(header, line, strict=False)), f"{path}, line {number}")
                yield CaptionLine(str(line[0]), str(line[1]), csv_row(line), marks)
                continue
            value = parse_json(line)
            whole = structured_text(value)
            texts = value.get("captions") or [whole or value.get("caption", value.get("text"))]
            if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
                raise ValueError("no caption")
            marks = tuple(name for name in MARKS if value.get(name))
            yield CaptionLine(str(value["id"]), "\n".join(texts), line.rstrip("\r\n") + "\n", marks)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise UsageError(
                f"{path}, line {number}: not a caption in this command's format; fix or remove "
                "the line, or pass --replace-edited to start the file over (a backup is kept)"
            ) from None


def texts_by_id(lines: Iterable[CaptionLine]) -> dict[str, str]:
    """Returns the text of each id. The texts of several rows with one id are joined by newlines."""
    texts: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        texts[line.id].append(line.text)
    return {id_: "\n".join(own) for id_, own in texts.items()}


def csv_row(values: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise UsageError(
            f"the id {text!r} contains a line break, which this command's CSV does not support; use -o captions.jsonl"
        )
    return text


def format_of(out: Path | None, format: str | None) -> str:
    return format or (out.suffix.lower().lstrip(".") if out else "")
