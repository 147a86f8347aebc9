"""Files beside pictures: where they are, and what is said of pictures that are not files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tellapart.captions.paths_beside import common_folder
from tellapart.captions.sidecar_layout import Sidecars
from tellapart.data.pictures import BytesPicture, FilePicture
from tellapart.errors import UsageError
from tellapart.types import Item


def test_pictures_that_are_no_files_have_no_folder(tmp_path: Path) -> None:
    """The message names no suffix, because the callers write other files than texts."""
    items = [Item("a", FilePicture(tmp_path / "a.png"), (), ""), Item("b", BytesPicture(b"", "b.tar#b.png"), (), "")]
    assert common_folder(items[:1]) == tmp_path
    with pytest.raises(UsageError, match=r"b\.tar#b\.png is not a file, so no file can be written beside it; use -o"):
        common_folder(items)


def test_work_grows_in_proportion_where_pictures_share_a_stem(tmp_path: Path) -> None:
    names = [*(f"{number}.jpg" for number in range(50_000)), "0.png"]
    items = [Item(name, FilePicture(tmp_path / name), (), "") for name in names]
    start = time.process_time()
    found = Sidecars.find(items, (".txt", ".caption"))
    assert time.process_time() - start < 5
    assert [found.place(id_).key for id_ in ("0.jpg", "0.png", "1.jpg")] == ["0.jpg.txt", "0.png.txt", "1.txt"]
