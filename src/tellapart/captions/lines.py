"""Formats captions for output: JSON lines, CSV, plain text, and WebDataset tar samples."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from tellapart.captions.picture_record import PictureRecord
from tellapart.data.decode import PICTURE_SUFFIXES, open_image
from tellapart.data.pictures import FilePicture
from tellapart.data.video import CLIP_SUFFIXES
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.strict_json import json_text, parse_json
from tellapart.utils.terminal_text import for_terminal

METADATA = "metadata.jsonl"  # Hugging Face's list of the pictures in a folder, by file name


@dataclass(frozen=True)
class Written:
    """A picture's caption. ``candidates``: with best-of, all samples with their scores in nats, best first.

    ``samples``: all captions of the picture if several were requested; ``caption`` is the first. ``picture``: the
    record of the decoded picture; None if unknown. ``structured``: the caption as an object of a JSON schema.
    ``claims``: the claims in the caption, each with its confidence.
    """

    item: Item
    caption: str
    candidates: tuple[tuple[str, float], ...] = ()
    samples: tuple[str, ...] = ()
    picture: PictureRecord | None = None
    structured: Mapping[str, Any] | None = None
    claims: tuple[Mapping[str, Any], ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """Returns all captions of the picture; for a structured caption, its JSON."""
        if self.structured is not None:
            return (json_text(self.structured),)
        return self.samples if len(self.samples) > 1 else (self.caption,)


def text_lines(written: Written) -> str:
    """Returns the captions of a picture alone, one per line."""
    return "".join(f"{for_terminal(text)}\n" for text in written.texts)


def csv_header(scored: bool) -> str:
    return "id,caption,score\n" if scored else "id,caption\n"


def csv_line(written: Written) -> str:
    """Returns a picture's line for a ``.csv`` file."""
    text = io.StringIO()
    score = [f"{written.candidates[0][1]:.6g}"] if written.candidates else []
    csv.writer(text, lineterminator="\n").writerow([_one_line(written.item.id), written.caption, *score])
    return text.getvalue()


def name_in(item: Item, folder: Path) -> str:
    """Returns the path of a picture relative to a folder, with forward slashes.

    Raises `UsageError` if the picture is not a file, or if its name is not valid UTF-8: caption lists cannot store it.
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
    """Returns a picture's line for a ``.jsonl`` file, or for `METADATA` in a ``folder``. Raises the errors of
    `name_in`.
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
    """Returns the structured caption in a line as JSON, with the line's ``caption`` inserted; None if the line has
    none.

    A person may have edited either of them.
    """
    value = record.get("structured")
    if not isinstance(value, dict):
        return None
    return json_text({**value, "caption": record["caption"]} if "caption" in value and "caption" in record else value)


class CaptionLine(NamedTuple):
    """One line in a file of captions. ``text``: its captions, one per line; ``line``: the raw line."""

    id: str
    text: str
    line: str


def caption_lines(text: str, format: str, path: Path) -> Iterator[CaptionLine]:
    """Yields the lines in a file of captions, without a CSV header. Raises `UsageError` for invalid lines."""
    lines: Any = csv.reader(io.StringIO(text, newline="")) if format == "csv" else io.StringIO(text, newline="")
    for number, line in enumerate(lines, start=1):
        if not line or (format == "csv" and number == 1):
            continue
        try:
            if format == "csv":
                yield CaptionLine(str(line[0]), str(line[1]), _csv_line(line))
                continue
            value = parse_json(line)
            whole = structured_text(value)
            texts = value.get("captions") or [whole or value.get("caption", value.get("text"))]
            if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
                raise ValueError("no caption")
            yield CaptionLine(str(value["id"]), "\n".join(texts), line.rstrip("\r\n") + "\n")
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise UsageError(
                f"{path}, line {number}: not a caption in this command's format; fix or remove "
                "the line, or pass --replace-edited to start the file over (a backup is kept)"
            ) from None


def _csv_line(values: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _readable(name: str) -> str:
    """Returns a short name without suffix, in characters that all file systems and tar readers accept."""
    return re.sub(r"[^A-Za-z0-9]+", "-", PurePosixPath(name).stem).strip("-")[:60]


def write_sample(file: BinaryIO, number: int, item: Item, captions: Sequence[str]) -> None:
    """Appends a sample to a tar file (WebDataset): the unmodified picture, its captions and its id."""
    data, suffix = bytes_of(item)
    key = f"{number:09d}-{_readable(item.id)}"
    texts = {"id": item.id, "captions": list(captions)} | ({"split": item.split} if item.split else {})
    members = [
        (f"{key}{suffix}", data),
        (f"{key}.json", (json.dumps(texts, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")),
    ]
    if all(len(caption.splitlines()) == 1 for caption in captions):  # otherwise a caption would span several lines
        text = "\n".join(captions) + "\n"
        members.append((f"{key}.txt", text.encode("utf-8", "backslashreplace")))
    for name, content in members:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        file.write(member.tobuf(tarfile.USTAR_FORMAT))
        file.write(content)
        file.write(b"\0" * (-len(content) % tarfile.BLOCKSIZE))


def bytes_of(item: Item) -> tuple[bytes, str]:
    """Returns the encoded picture and a matching file suffix; encodes pictures without a file as PNG."""
    picture: Any = item.picture
    if hasattr(picture, "read"):
        data = bytes(picture.read().data)
        suffix = PurePosixPath(picture.name.rpartition("#")[2]).suffix.lower()
        return data, suffix if suffix in PICTURE_SUFFIXES | CLIP_SUFFIXES else _suffix_of(data, picture.name)
    made = io.BytesIO()
    picture.image().save(made, "PNG")
    return made.getvalue(), ".png"


def _suffix_of(data: bytes, name: str) -> str:
    """Infers the suffix from the content if that of the name is useless (``photo.jpg?w=300``, ``a.jpg.1``)."""
    with open_image(data, name) as found:
        format = str(found.format)
    return {"JPEG": ".jpg", "MPO": ".jpg", "JPEG2000": ".jp2"}.get(format, f".{format.lower()}")


def end_tar(file: BinaryIO) -> None:
    """Writes the end-of-archive marker of a tar file."""
    file.write(b"\0" * (2 * tarfile.BLOCKSIZE))


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise UsageError(
            f"the id {text!r} contains a line break, which this command's CSV does not support; use -o captions.jsonl"
        )
    return text
