"""Turns failed writes into one-line messages."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterator
from pathlib import Path

from tellapart.errors import TellapartError


@contextlib.contextmanager
def write_errors(path: Path, remedy: str, when_full: str | None = None) -> Iterator[None]:
    """Turns an `OSError` into a one-line `TellapartError` with the path, the cause, and ``remedy``.

    ``when_full`` replaces ``remedy`` if the disk or the quota is full.
    """
    try:
        yield
    except OSError as error:
        full = when_full is not None and error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise TellapartError(f"{path}: {error.strerror or error}; {when_full if full else remedy}") from None


def output_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    """Turns an `OSError` in writing a file that the user named into a one-line `TellapartError`."""
    return write_errors(path, "choose another file", "free some disk space and run the same command again")


@contextlib.contextmanager
def stdout_errors() -> Iterator[None]:
    """Turns an error in writing to stdout, which names no file, into a `TellapartError` that mentions stdout."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # e.g. ``| head``: exit silently
        raise
    except OSError as error:
        raise TellapartError(f"stdout: {error.strerror or error}; the output is incomplete") from None
