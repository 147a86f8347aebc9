"""A file of SQLite that is one kind of ours, and takes nothing back: what was committed survives a power cut."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tellapart.errors import TellapartError, UsageError

PATIENCE = 10.0  # seconds that a writer waits for another


@dataclass(frozen=True)
class FileKind:
    """The kind of such a file. ``application`` and ``format`` are SQLite's fields for whose file it is, and which."""

    what: str  # "answers", in messages
    option: str  # that names another file
    application: int
    format: int
    schema: Sequence[str]  # statements that make its tables where they are not there
    pragmas: Sequence[str] = ()


def open_sqlite(path: Path, kind: FileKind) -> sqlite3.Connection:
    """Returns a connection for several threads, by turns. Makes the file where it is not there.

    Raises `UsageError` for a file of something else, `TellapartError` where the disk fails.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise TellapartError(f"cannot open {path} for the {kind.what}: {error}") from None
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
        raise TellapartError(f"{path}: {kind.what} cannot be written there ({error})") from None
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
        raise UsageError(f"{path}: not a file of {kind.what} ({error}); name another with {kind.option}") from None
    if application != kind.application and tables:
        raise UsageError(f"{path}: a database of something else; name another file with {kind.option}")
    if application == kind.application and version != kind.format:
        raise UsageError(f"{path}: format {version} of {kind.what}, and this version reads {kind.format}; update it")


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All statements or none. The look and the write are one: no other writer comes between."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # of a full disk, SQLite may have rolled back by itself
            db.execute("ROLLBACK")
        raise
