"""Databases of answers: a SQLite file, or a schema on a PostgreSQL server; one transaction at a time.

Commits are durable. The SQL is the common subset of both databases; ``?`` stands for a value.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.utils.sqlite import PATIENCE, FileKind, open_sqlite, transaction

if TYPE_CHECKING:
    import psycopg

APPLICATION = 0x7E11A9B2 & 0x7FFFFFFF  # SQLite's field that identifies the application a file belongs to
SCHEMA_VERSION = 1
Row = tuple[Any, ...]


Transaction = Callable[..., list[Row]]  # runs a statement with values, as part of a transaction, and returns its rows


class StoreError(TellapartError):
    """Error of the database; the same request may succeed later."""


class SqliteDatabase:
    """A SQLite file in WAL mode, whose commits survive a power cut."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.name, self._db = str(path), db
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, schema: Sequence[str], *, create: bool = True) -> SqliteDatabase:
        """Opens the file. Raises `UsageError` for a different kind of file, or for a missing file if
        ``create`` is False.
        """
        if not create and not path.is_file():
            raise UsageError(f"{path} contains no answers yet; run: tellapart study serve, or tellapart study simulate")
        return cls(
            path,
            open_sqlite(
                path, FileKind("answers", "--store", APPLICATION, SCHEMA_VERSION, schema, ["secure_delete = ON"])
            ),
        )

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Opens a transaction that locks out other writers until it commits. Raises `StoreError`."""
        with self._lock:
            try:
                with transaction(self._db):
                    yield lambda sql, values=(): self._db.execute(sql, tuple(values)).fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"{self.name}: not saved ({error})") from None

    def compact(self) -> None:
        """Removes deleted rows from the log and from free pages, so that they cannot be recovered from the file.

        Raises `StoreError` if another process uses the file for too long; the rows are deleted nevertheless.
        """
        try:
            with self._lock:
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._db.execute("VACUUM")
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.name}: deleted, but not yet overwritten in the file ({error}); run the same "
                "command again when nothing else uses the file"
            ) from None

    def close(self) -> None:
        """Closes the database. Committed data are kept."""
        with self._lock:
            self._db.close()


class PostgresDatabase:
    """A separate schema on a PostgreSQL server. Reconnects if the connection is lost."""

    def __init__(self, url: str, space: str, driver: ModuleType) -> None:
        self.name, self._url, self._space, self._psycopg = url, url, space, driver
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Row] | None = None

    @classmethod
    def open(cls, url: str, schema: Sequence[str], space: str, *, create: bool = True) -> PostgresDatabase:
        """Connects and creates missing tables."""
        try:
            import psycopg
        except ModuleNotFoundError:
            raise MissingExtra("study", "a store on PostgreSQL") from None
        if re.match(r"[^/]+//[^/@]*:[^/@]*@", url):
            raise UsageError(
                "--store: other users can read a password on the command line; use ~/.pgpass or the variable PGPASSWORD"
            )
        database = cls(url, space, psycopg)
        with database.transaction() as run:
            known = run("SELECT 1 FROM information_schema.schemata WHERE schema_name = ?", (space,))
            if not known and not create:
                raise UsageError(f"{url} contains no answers to this study yet; run: tellapart study serve")
            run(f"CREATE SCHEMA IF NOT EXISTS {space}")
            run(f"SET search_path TO {space}")
            for statement in schema:
                run(statement)
        return database

    def _connect(self) -> psycopg.Connection[Row]:
        if self._connection is None or self._connection.closed:
            connection: psycopg.Connection[Row] = self._psycopg.connect(self._url, connect_timeout=int(PATIENCE))
            self._connection = connection
            self._connection.execute(f"SET search_path TO {self._space}")
            self._connection.commit()
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """See `SqliteDatabase`. Other processes wait on an advisory lock."""
        with self._lock:
            try:
                connection = self._connect()
                with connection.transaction():
                    number = int.from_bytes(self._space.encode()[-8:], "big", signed=True)
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
                    yield lambda sql, values=(): self._run(connection, sql, values)
            except self._psycopg.Error as error:
                if self._connection is not None:
                    self._connection.close()
                self._connection = None
                line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
                raise StoreError(f"{self.name}: not saved ({line})") from None

    @staticmethod
    def _run(connection: psycopg.Connection[Row], sql: str, values: Sequence[Any]) -> list[Row]:
        done = connection.execute(sql.replace("?", "%s").encode(), tuple(values) or None)
        return done.fetchall() if done.description else []

    def compact(self) -> None:
        """Does nothing, because PostgreSQL vacuums automatically."""

    def close(self) -> None:
        """Closes the database. Committed data are kept."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()


Database = SqliteDatabase | PostgresDatabase
