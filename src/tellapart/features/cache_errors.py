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
    full = f"no space left for the cache; run: tellapart cache --empty, or {elsewhere}"
    try:
        yield
    except sqlite3.Error as error:
        causes = {  # by a part of SQLite's message
            "full": full,
            "locked": f"another process has locked the cache for more than a minute; {elsewhere}",
            "readonly": f"the cache cannot be written ({error}); {elsewhere}",
            "unable to open": f"the cache cannot be written ({error}); {elsewhere}",
            # a file size limit or a failing disk
            "I/O error": f"the cache cannot be read or written ({error}); {elsewhere}",
            "": f"the cache is damaged ({error}); run: tellapart cache --empty",
        }
        cause = next(cause for part, cause in causes.items() if part in str(error))
        raise TellapartError(f"{folder}: {cause}") from None
    except OSError as error:
        unusable = f"the cache cannot be used ({error.strerror or error}); {elsewhere}"
        cause = full if error.errno in (errno.ENOSPC, errno.EDQUOT) else unusable
        raise TellapartError(f"{folder}: {cause}") from None
