"""Databases for answers: a SQLite file, or a schema on a PostgreSQL server. Both run one transaction at a time.

Commits are durable. Statements use the SQL that both databases support, with ``?`` as the placeholder for a value.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tellapart.errors import MissingExtra, TellapartError, UsageError, first_line
from tellapart.utils.sqlite import PATIENCE, FileKind, open_sqlite, transaction

APPLICATION = 0x7E11A9B2 & 0x7FFFFFFF  # SQLite's application id, which identifies the application that owns a file
SCHEMA_VERSION = 3
Row = tuple[Any, ...]
Transaction = Callable[..., list[Row]]  # runs a statement with values inside a transaction and returns its rows


class StoreError(TellapartError):
    """Raised if the database fails. The same request may succeed later."""


class SqliteDatabase:
    """A SQLite file in WAL mode. Its commits survive a power failure.

    Raises `UsageError` if the file is of a different kind, or if it is missing and ``create`` is False.
    """

    def __init__(self, path: Path, schema: Sequence[str], *, create: bool) -> None:
        if not create and not path.is_file():
            raise UsageError(f"{path} contains no answers yet; run: tellapart study serve, or tellapart study simulate")
        kind = FileKind("answers", "--store", APPLICATION, SCHEMA_VERSION, schema, ["secure_delete = ON"])
        self.name, self._db, self._lock = str(path), open_sqlite(path, kind), threading.Lock()

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

        Raises `StoreError` if another process uses the file for too long. The rows remain deleted even then.
        """
        try:
            with self._lock:
                for statement in ("PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                    self._db.execute(statement)
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
    """The schema ``space`` on a PostgreSQL server. Reconnects if the connection is lost.

    Raises `UsageError` if the URL contains a password, or if the schema is missing and ``create`` is False.
    """

    def __init__(self, url: str, space: str, schema: Sequence[str], *, create: bool) -> None:
        try:
            import psycopg
        except ModuleNotFoundError:
            raise MissingExtra("study", "a store on PostgreSQL") from None
        if re.match(r"[^/]+//[^/@]*:[^/@]*@", url):
            raise UsageError(
                "--store: other users can read a password on the command line; use ~/.pgpass or the variable PGPASSWORD"
            )
        self.name, self._space, self._psycopg, self._lock = url, space, psycopg, threading.Lock()
        self._connection: psycopg.Connection[Row] | None = None
        with self.transaction() as run:
            exists = run("SELECT 1 FROM information_schema.schemata WHERE schema_name = ?", (space,))
            if not exists and not create:
                raise UsageError(f"{url} contains no answers to this study yet; run: tellapart study serve")
            for statement in (f"CREATE SCHEMA IF NOT EXISTS {space}", *schema):
                run(statement)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Opens a transaction, see `SqliteDatabase.transaction`. Other processes wait for an advisory lock."""
        with self._lock:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = self._psycopg.connect(self.name, connect_timeout=int(PATIENCE))
                connection = self._connection

                def run(sql: str, values: Sequence[Any] = ()) -> list[Row]:
                    done = connection.execute(sql.replace("?", "%s").encode(), tuple(values) or None)
                    return done.fetchall() if done.description else []

                with connection.transaction():
                    run(f"SET LOCAL search_path TO {self._space}")
                    run("SELECT pg_advisory_xact_lock(hashtext(?))", (self._space,))
                    yield run
            except self._psycopg.Error as error:
                self.close()  # the next transaction reconnects
                raise StoreError(f"{self.name}: not saved ({first_line(error)})") from None

    def compact(self) -> None:
        """Does nothing, because PostgreSQL vacuums automatically."""

    def close(self) -> None:
        """Closes the connection. Committed data are kept."""
        if self._connection is not None:
            self._connection.close()


Database = SqliteDatabase | PostgresDatabase
