"""Atomic writes, and errors of the file system as one line."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tellapart.errors import TellapartError, UsageError


@contextlib.contextmanager
def write_errors(path: Path, remedy: str, when_full: str | None = None) -> Iterator[None]:
    """Turn an `OSError` into a `TellapartError` of one line: the path, the cause, and ``remedy``.

    ``when_full`` replaces ``remedy`` where the disk or the quota is full.
    """
    try:
        yield
    except OSError as error:
        full = when_full is not None and error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise TellapartError(f"{path}: {error.strerror or error}; {when_full if full else remedy}") from None


def writable_file(path: Path) -> Path:
    """Returns where a file of this name is written: through symbolic links.

    Raises `UsageError` for a folder, a device, a pipe or a socket, which a file written whole would replace.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # new, or a link to what is not there yet
        return path.resolve() if path.is_symlink() else path
    except OSError as error:
        raise TellapartError(f"{path}: cannot be written ({error.strerror or error}); name another file") from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path}: is a folder; name a file such as {path / 'result'}")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: a device, pipe or socket; name a regular file, or a new one")
    return path.resolve() if path.is_symlink() else path


def replace_text(path: Path, text: str, *, sync: bool = True, errors: str = "strict") -> None:
    """`replace_file` with UTF-8 text. ``errors``: the error handler of `str.encode`."""
    replace_file(path, lambda new: new.write_text(text, encoding="utf-8", errors=errors, newline="\n"), sync=sync)


def replace_file(path: Path, write: Callable[[Path], Any], *, sync: bool = True) -> None:
    """Write a file atomically: readers see the old content or the new, never a part.

    ``write`` makes a temporary file beside ``path``, which is flushed to disk (skip this with ``sync=False`` for very
    many files) and renamed. A symbolic link stays, and the file that it names is written. Raises `OSError`; see
    `write_errors` and `writable_file`.
    """
    path = writable_file(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        if sync:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):  # the first error is the one to report
            temporary.unlink(missing_ok=True)


def readable_weights(folder: Path) -> None:
    """Give the safetensors files in and below ``folder`` the mode of a new file (644 with the usual umask).

    safetensors makes them readable by their owner alone. Reading the umask would change it for all threads, so the mode
    is taken from a temporary file.
    """
    probe = folder / f".mode.{os.getpid()}"
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for file in folder.rglob("*.safetensors"):
        file.chmod(mode)
