"""Files that a user names for writing: links are written through, and what is no regular file stays what it is."""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tellapart.errors import TellapartError, UsageError
from tellapart.utils.atomic_writes import replace_file, replace_text


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
        with pytest.raises(UsageError, match=f"{name} is a (device, pipe or socket|folder); specify a"):
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
    with pytest.raises(TellapartError, match="loop cannot be written"):
        replace_text(tmp_path / "loop", "text")


def test_a_name_may_be_as_long_as_the_file_system_takes(tmp_path: Path) -> None:
    for name in ("n" * 251 + ".txt", "雪" * 83 + ".txt"):  # 255 and 253 bytes
        replace_text(tmp_path / name, "text")
        assert (tmp_path / name).read_text() == "text"


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    """By the next process that writes there; what a process that runs, another host, or a person has stays."""
    killed = f"""
import os, signal
from pathlib import Path
from tellapart.training.run_files import write_folder
from tellapart.utils.atomic_writes import replace_file
def write(path):
    (path / "weights").write_text("half") if path.is_dir() else path.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
if os.fork():
    os.wait()
    replace_file(Path({str(tmp_path)!r}) / "a.json", write)
write_folder(Path({str(tmp_path)!r}) / "run" / "model", write)
"""
    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == -signal.SIGKILL
    left = sorted(path.name for path in tmp_path.rglob(".*"))
    assert len(left) == 2 and left[0].startswith(".a.json.") and left[1].startswith(".model."), left
    here = left[0].rsplit(".", 3)[1]
    stay = {f".b.json.{here}.{os.getppid()}", ".b.json.00000000.4194303", ".b.json.4194303", f".b.json.{here}.old"}
    for name in stay:
        (tmp_path / name).touch()
    for folder in (tmp_path, tmp_path / "run"):
        replace_text(folder / "c.json", "text")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "c.json", *stay}
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["c.json"]


def test_threads_that_write_one_file_do_not_share_a_temporary_file(tmp_path: Path) -> None:
    """Each reads back what it wrote, after the other has written too, and both succeed."""
    together = threading.Barrier(2, timeout=10)

    def write(text: str) -> str:
        def fill(new: Path) -> None:
            together.wait()
            new.write_text(text)
            together.wait()
            seen.append(new.read_text())

        seen: list[str] = []
        replace_file(tmp_path / "a.json", fill)
        return seen[0]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, ("one", "two"))) == ["one", "two"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_write_that_fails_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    """Where the system names none (a full disk, `ulimit -f`), and where it names the temporary one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            replace_text(tmp_path / "a.json", "x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(tmp_path / "a.json") and not list(tmp_path.iterdir())
    with pytest.raises(OSError, match="No such file") as caught:
        replace_text(tmp_path / "never" / "a.json", "x")
    assert caught.value.filename == str(tmp_path / "never" / "a.json")
