"""Writes files atomically: readers see either the old or the new content. Paths are never normalized."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import socket
import stat
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tellapart.errors import TellapartError, UsageError


def writable_file(path: Path) -> Path:
    """Returns the path to write to, with symbolic links resolved.

    Raises `UsageError` for a folder, device, pipe or socket, which an atomic write would replace.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # a new file, or a dangling link
        return path.resolve() if path.is_symlink() else path
    except OSError as error:
        raise TellapartError(f"{path} cannot be written ({error.strerror or error}); choose another file") from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path} is a folder; specify a file such as {path / 'result'}")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is a device, pipe or socket; specify a regular file")
    return path.resolve() if path.is_symlink() else path


def replace_text(path: Path, text: str, *, sync: bool = True, errors: str = "strict") -> None:
    """Writes UTF-8 text atomically (see `replace_file`). ``errors``: the error handler of `str.encode`."""
    replace_file(path, lambda new: new.write_text(text, encoding="utf-8", errors=errors, newline="\n"), sync=sync)


def replace_file(path: Path, write: Callable[[Path], Any], *, sync: bool = True) -> None:
    """Writes a file atomically: readers see either the old or the new content, never part of it.

    ``write`` creates a temporary file next to ``path``, which is flushed to disk (unless ``sync`` is False, for very
    many files) and renamed. Follows symbolic links and keeps the mode of an existing file. Raises `OSError`; see
    `write_errors` and `writable_file`.
    """
    path = writable_file(path)
    temporary = temporary_beside(path)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    try:
        if mode is not None:  # set before the file has any content
            temporary.touch()
            temporary.chmod(mode | stat.S_IWUSR)
        write(temporary)
        if mode is not None:
            temporary.chmod(mode)
        if sync:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # e.g. a full disk or a ulimit; the system's error names no file
            error.filename = str(path)
        raise
    finally:
        with contextlib.suppress(OSError):  # report the first error
            temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flushes a folder to disk, including the names of new files, if the file system supports it."""
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def temporary_beside(path: Path) -> Path:
    """Returns a hidden temporary name, of valid length, for a file or folder that will be renamed to ``path``.

    Each thread gets its own name, so that two threads can write the same file. Also removes temporary files that killed
    processes left in the same folder.
    """
    _remove_left(path.parent.absolute())
    begins = os.fsdecode(os.fsencode(path.name)[:200])
    return path.with_name(f".{begins}.{_here()}.{os.getpid()}.{threading.get_native_id() & 0xFFFFFFFF:08x}")


@functools.cache
def _here() -> str:
    """Returns 8 hexadecimal digits that identify this host and container, within which process ids are unique."""
    container = ""
    with contextlib.suppress(OSError):
        container = str(Path("/proc/self/ns/pid").stat().st_ino)
    return f"{zlib.crc32(f'{socket.gethostname()} {container}'.encode()):08x}"


@functools.cache
def _remove_left(folder: Path) -> None:
    """Removes the temporary files that killed processes on this host left in a folder.

    Checks each folder only once per process, because folders may be large.
    """
    left = re.compile(rf"\..+\.{_here()}\.(\d+)(\.[0-9a-f]{{8}})?", re.DOTALL)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if (named := left.fullmatch(entry.name)) and not _is_running(int(named[1])):
                with contextlib.suppress(OSError):
                    shutil.rmtree(entry) if entry.is_dir(follow_symlinks=False) else Path(entry).unlink()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
