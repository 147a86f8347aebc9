"""What tests of readers share: tiny pictures, and what is said of wrong input."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from tellapart.data import Dataset, open_data
from tellapart.errors import UsageError


def draw(path: Path, colour: str = "red") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), colour).save(path)
    return path


def wrong(spec: object) -> str:
    with pytest.raises(UsageError) as caught:
        open_data(str(spec))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def ids(dataset: Dataset) -> list[str]:
    return [item.id for item in dataset]


def all_of(dataset: Dataset) -> list[tuple[str, tuple[str, ...], str]]:
    return [(item.id, item.references, item.split) for item in dataset]


def png(colour: str = "red", size: int = 4) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (size, size), colour).save(buffer, "png")
    return buffer.getvalue()


def tar(path: Path, *members: tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path
