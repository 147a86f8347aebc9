"""One-line messages for errors of the cache folder."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from tellapart.errors import TellapartError


@contextlib.contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """Converts system errors about the cache folder to one-line messages that say what to do."""
    elsewhere = "set TELLAPART_CACHE to another folder"
    try:
        yield
    except sqlite3.Error as error:
        if "full" in str(error):
            raise TellapartError(_full(folder)) from None
        if "locked" in str(error):
            raise TellapartError(
                f"{folder}: another process has locked the cache for more than a minute; {elsewhere}"
            ) from None
        if "readonly" in str(error) or "unable to open" in str(error):
            raise TellapartError(f"{folder}: the cache cannot be written ({error}); {elsewhere}") from None
        if "I/O error" in str(error):  # a file size limit or a failing disk
            raise TellapartError(f"{folder}: the cache cannot be read or written ({error}); {elsewhere}") from None
        raise TellapartError(f"{folder}: the cache is damaged ({error}); run: tellapart cache --empty") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TellapartError(_full(folder)) from None
        raise TellapartError(f"{folder}: the cache cannot be used ({error.strerror or error}); {elsewhere}") from None


def _full(folder: Path) -> str:
    return (
        f"{folder}: no space left for the cache; run: tellapart cache --empty, or set TELLAPART_CACHE to another folder"
    )
