"""The index of the feature store: one SQLite file, opened for each transaction, and what the system says as one line.

The rollback journal (not WAL) is used, for it also works on the network file systems where home folders lie.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tellapart.errors import TellapartError

SCHEMA_VERSION = 3  # 1 had no checksums, 2 no shards
SCHEMA = """
CREATE TABLE tables (name TEXT PRIMARY KEY, label TEXT NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL,
                     count INTEGER NOT NULL, used REAL NOT NULL, per_shard INTEGER);
CREATE TABLE rows (name TEXT NOT NULL, key TEXT NOT NULL, row INTEGER NOT NULL, sum INTEGER, PRIMARY KEY (name, key))
  WITHOUT ROWID;
CREATE TABLE files (path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, key TEXT NOT NULL)
  WITHOUT ROWID;
"""
CHANGES = {  # from a version to the next one
    1: "ALTER TABLE rows ADD COLUMN sum INTEGER",
    2: "ALTER TABLE tables ADD COLUMN per_shard INTEGER",
}
KEYS_PER_QUERY = 500  # parameters of one query; old builds of SQLite allow 999


class CacheIndex:
    """``FOLDER/index.sqlite``, made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "index.sqlite"

    @contextlib.contextmanager
    def transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction: none is kept, so forks, threads and ``--empty`` cannot be hurt by it."""
        with cache_errors(self.folder):
            (self.folder / "rows").mkdir(parents=True, exist_ok=True)
            index = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            try:
                _prepare(index, self.folder)
                index.execute(f"BEGIN {kind}")
                try:
                    yield index
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back by itself (full disk)
                        index.execute("ROLLBACK")
                    raise
                index.execute("COMMIT")
            finally:
                index.close()


def look_up(index: sqlite3.Connection, query: str, keys: Sequence[str], *first: str) -> dict[str, Any]:
    """The rows of a query that ends in ``IN``, for any number of keys: its first column to its second."""
    found: dict[str, Any] = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        some = keys[start : start + KEYS_PER_QUERY]
        found.update(index.execute(f"{query} ({','.join('?' * len(some))})", (*first, *some)).fetchall())
    return found


@contextlib.contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """What the system says about the cache folder, as one line with what to do."""
    elsewhere = "set TELLAPART_CACHE to another folder"
    try:
        yield
    except sqlite3.Error as error:
        if "full" in str(error):
            raise TellapartError(_full(folder)) from None
        if "locked" in str(error):
            raise TellapartError(f"{folder}: another process holds the cache for over a minute; {elsewhere}") from None
        if "readonly" in str(error) or "unable to open" in str(error):
            raise TellapartError(f"{folder}: the cache cannot be written ({error}); {elsewhere}") from None
        raise TellapartError(f"{folder}: the cache is damaged ({error}); type: tellapart cache --empty") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TellapartError(_full(folder)) from None
        raise TellapartError(f"{folder}: the cache cannot be used ({error.strerror or error}); {elsewhere}") from None


def _prepare(index: sqlite3.Connection, folder: Path) -> None:
    (version,) = index.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    if version not in (0, *CHANGES):
        raise TellapartError(f"{folder}: a cache of another version of tellapart; type: tellapart cache --empty")
    index.execute("BEGIN EXCLUSIVE")
    (version,) = index.execute("PRAGMA user_version").fetchone()  # another process may have been faster
    if version == 0:
        for statement in filter(str.strip, SCHEMA.split(";")):
            index.execute(statement)
    else:
        for before in range(version, SCHEMA_VERSION):
            index.execute(CHANGES[before])
    index.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    index.execute("COMMIT")


def _full(folder: Path) -> str:
    return f"{folder}: no space left for the cache; type: tellapart cache --empty, or set TELLAPART_CACHE elsewhere"
