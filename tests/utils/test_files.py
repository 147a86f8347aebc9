"""Files that a user names for writing: links are written through, and what is no regular file stays what it is."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tellapart.errors import TellapartError, UsageError
from tellapart.utils.files import replace_text


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))  # as /dev/null
    except PermissionError:
        pytest.skip("only root makes device nodes")


def plug(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize("make", [device, os.mkfifo, plug, Path.mkdir])
def test_what_is_no_regular_file_is_refused_and_stays(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "out.json")
    (tmp_path / "link.json").symlink_to("out.json")
    before = (tmp_path / "out.json").stat()
    for name in ("out.json", "link.json"):
        with pytest.raises(UsageError, match=f"{name}: (a device, pipe or socket|is a folder); name a"):
            replace_text(tmp_path / name, "text")
    after = (tmp_path / "out.json").stat()
    assert (after.st_ino, after.st_mode, after.st_rdev) == (before.st_ino, before.st_mode, before.st_rdev)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "out.json"]


def test_a_symbolic_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    for name in ("there", "new"):
        real, link = tmp_path / "disk" / name, tmp_path / f"{name}.json"
        link.symlink_to(real)
        if name == "there":
            real.write_text("old")
        replace_text(link, "text")
        assert link.is_symlink() and real.read_text() == "text" and not real.is_symlink()
    assert len(list(tmp_path.rglob("*"))) == 5  # no temporary file is left


def test_a_link_to_itself_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(TellapartError, match="loop: cannot be written"):
        replace_text(tmp_path / "loop", "text")


def test_a_name_may_be_as_long_as_the_file_system_takes(tmp_path: Path) -> None:
    for name in ("n" * 251 + ".txt", "雪" * 83 + ".txt"):  # 255 and 253 bytes
        replace_text(tmp_path / name, "text")
        assert (tmp_path / name).read_text() == "text"
