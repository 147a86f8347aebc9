"""Writes pictures and their captions to a tar file, as WebDataset samples."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from tellapart.data.decode import open_image
from tellapart.data.file_names import READABLE_SUFFIXES
from tellapart.types import Item


def _readable(name: str) -> str:
    """Returns a short name without a suffix, in characters that all file systems and tar readers accept."""
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
    """Returns the encoded picture and a matching file suffix. Encodes pictures without a file as PNG."""
    picture: Any = item.picture
    if hasattr(picture, "read"):
        data = bytes(picture.read().data)
        suffix = PurePosixPath(picture.name.rpartition("#")[2]).suffix.lower()
        return data, suffix if suffix in READABLE_SUFFIXES else _suffix_of(data, picture.name)
    made = io.BytesIO()
    picture.image().save(made, "PNG")
    return made.getvalue(), ".png"


def _suffix_of(data: bytes, name: str) -> str:
    """Infers the suffix from the content, for names with a useless suffix (``photo.jpg?w=300``, ``a.jpg.1``)."""
    with open_image(data, name) as found:
        format = str(found.format)
    return {"JPEG": ".jpg", "MPO": ".jpg", "JPEG2000": ".jp2"}.get(format, f".{format.lower()}")


def end_tar(file: BinaryIO) -> None:
    """Writes the end-of-archive marker of a tar file."""
    file.write(b"\0" * (2 * tarfile.BLOCKSIZE))
