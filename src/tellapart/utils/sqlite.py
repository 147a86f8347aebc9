"""Opens SQLite files with an application id and durable commits, which survive a power failure."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tellapart.errors import TellapartError, UsageError

PATIENCE = 10.0  # seconds that one writer waits for another


@dataclass(frozen=True)
class FileKind:
    """A kind of SQLite file; ``application`` and ``format`` are its application id and user version."""

    what: str  # "answers", in messages
    option: str  # option that names another file
    application: int
    format: int
    schema: Sequence[str]  # statements that create missing tables
    pragmas: Sequence[str] = ()


def open_sqlite(path: Path, kind: FileKind) -> sqlite3.Connection:
    """Opens a connection that several threads may use in turn. Creates the file if necessary.

    Raises `UsageError` for a different kind of file, and `TellapartError` for disk errors.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise TellapartError(f"cannot open {path}, the file of {kind.what}: {error}") from None
    try:
        _check(db, path, kind)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", *kind.pragmas):
            db.execute(f"PRAGMA {pragma}")
        with transaction(db):
            for statement in (*kind.schema, f"PRAGMA application_id = {kind.application}"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {kind.format}")
    except sqlite3.Error as error:
        db.close()
        raise TellapartError(f"{path}: {kind.what} cannot be written here ({error})") from None
    except BaseException:
        db.close()
        raise
    return db


def _check(db: sqlite3.Connection, path: Path, kind: FileKind) -> None:
    try:
        application, version = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.DatabaseError as error:
        raise UsageError(
            f"{path} is not a file of {kind.what} ({error}); specify another one with {kind.option}"
        ) from None
    if application != kind.application and tables:
        raise UsageError(f"{path} is a database of another program; specify another file with {kind.option}")
    if application == kind.application and version != kind.format:
        raise UsageError(
            f"{path} has format {version} of {kind.what}, but this version reads format {kind.format}; "
            "use the version of tellapart that wrote it"
        )


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Runs statements atomically. No other process can write between their reads and writes."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # on a full disk SQLite may already have rolled back
            db.execute("ROLLBACK")
        raise
