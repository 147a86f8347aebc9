"""Reviewers' decisions in SQLite.

Each decision is on disk before it is acknowledged, and no decision is ever overwritten. The table is a log: a later
decision on a bag replaces the earlier one, and undo marks a row, so that the earlier decision is valid again. Several
processes may write concurrently (WAL, one transaction per decision).
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pydantic.dataclasses

from tellapart.errors import TellapartError, UsageError
from tellapart.utils.sqlite import FileKind, open_sqlite, transaction
from tellapart.utils.strict_json import parse_json

# Differences between the pictures in a bag (paper 2, section 3.2, lists the first four).
FACETS = ("position", "action", "orientation", "attribute", "count", "text", "object", "other")
VERDICTS = ("keep", "drop")
LONGEST_NAME, LONGEST_NOTE = 60, 2000
APPLICATION = 0x7E11A9A7 & 0x7FFFFFFF  # SQLite's field that identifies the application a file belongs to
STORED_FORMAT = 1
TABLE = """
CREATE TABLE IF NOT EXISTS decisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    reviewer TEXT NOT NULL,
    bag TEXT NOT NULL,
    verdict TEXT NOT NULL CHECK (verdict IN ('keep', 'drop')),
    facets TEXT NOT NULL,
    note TEXT NOT NULL,
    undone TEXT
)"""
INDEX = "CREATE INDEX IF NOT EXISTS by_reviewer ON decisions (reviewer, bag, id)"
FILE = FileKind("decisions", "--decisions", APPLICATION, STORED_FORMAT, (TABLE, INDEX))
COLUMNS = "id, at, reviewer, bag, verdict, facets, note, undone"


@pydantic.dataclasses.dataclass(frozen=True)
class Decision:
    """One reviewer's decision on one bag, and when it was made (UTC). ``undone``: when it was undone, or None."""

    id: int
    at: str
    reviewer: str
    bag: str
    verdict: Literal["keep", "drop"]
    facets: tuple[str, ...] = ()
    note: str = ""
    undone: str | None = None


class Conflict(TellapartError):
    """Raised if another window of the same reviewer saved first. ``current`` is the valid decision."""

    def __init__(self, message: str, current: Decision | None) -> None:
        super().__init__(message)
        self.current = current


class DecisionStore:
    """The decisions file. Thread-safe. Raises `TellapartError` for disk errors."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path, self._db = path, db
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> DecisionStore:
        """Opens the file. Raises `UsageError` for a different kind of file, or for a missing file if
        ``create`` is False.
        """
        if not create and not path.is_file():
            raise UsageError(f"{path} contains no decisions; run: tellapart bags review BAGS.jsonl")
        return cls(path, open_sqlite(path, FILE))

    def decide(
        self,
        reviewer: str,
        bag: str,
        verdict: str,
        facets: Sequence[str] = (),
        note: str = "",
        *,
        replaces: int | None = None,
    ) -> Decision:
        """Saves a decision. Repeating the request (after a lost reply) does not save it twice.

        replaces: id of the reviewer's previous decision that the page showed; None if it showed no decision.
        Raises `Conflict` if the reviewer has decided otherwise since, and `UsageError` for an unknown verdict or facet.
        """
        reviewer, note = reviewer_name(reviewer), checked_note(note)
        if verdict not in VERDICTS:
            raise UsageError(f"verdict: expected {' or '.join(VERDICTS)}, got '{verdict}'")
        if unknown := sorted(set(facets) - set(FACETS)):
            raise UsageError(f"facet: expected one or more of {', '.join(FACETS)}; got '{unknown[0]}'")
        chosen = tuple(facet for facet in FACETS if facet in facets)
        with self._transaction() as db:
            current = self._last(db, "reviewer = ? AND bag = ?", (reviewer, bag))
            if (current.id if current else None) != replaces:
                if current and (current.verdict, current.facets, current.note) == (verdict, chosen, note):
                    return current
                raise Conflict(f"{reviewer} has already decided on this bag in another window", current)
            # RETURNING would need SQLite 3.35, which is newer than that of some systems' Python 3.11.
            written = db.execute(
                "INSERT INTO decisions (at, reviewer, bag, verdict, facets, note) VALUES (?, ?, ?, ?, ?, ?)",
                (now(), reviewer, bag, verdict, json.dumps(chosen), note),
            )
            row = db.execute(f"SELECT {COLUMNS} FROM decisions WHERE id = ?", (written.lastrowid,)).fetchone()
        return _decision(row)

    def undo(self, reviewer: str, decision: int) -> Decision:
        """Undoes the reviewer's latest decision. Raises `Conflict` if it is not ``decision``."""
        with self._transaction() as db:
            last = self._last(db, "reviewer = ?", (reviewer_name(reviewer),))
            if last is None or last.id != decision:
                raise Conflict(f"{reviewer} has made or undone a decision in another window", last)
            db.execute("UPDATE decisions SET undone = ? WHERE id = ?", (now(), decision))
        return last

    def standing(self, reviewer: str | None = None) -> list[Decision]:
        """Returns the valid decisions of one or all reviewers, one per reviewer and bag, oldest first."""
        valid = [d for d in self.log() if d.undone is None and reviewer in (None, d.reviewer)]
        latest = {(d.reviewer, d.bag): d.id for d in valid}
        return [d for d in valid if d.id == latest[d.reviewer, d.bag]]

    def log(self) -> list[Decision]:
        """Returns all decisions ever made, oldest first."""
        with self._lock, self._database_errors():
            return [_decision(row) for row in self._db.execute(f"SELECT {COLUMNS} FROM decisions ORDER BY id")]

    def close(self) -> None:
        """Merges the write-ahead log into the file and closes it."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> DecisionStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _last(db: sqlite3.Connection, where: str, values: tuple[str, ...]) -> Decision | None:
        row = db.execute(
            f"SELECT {COLUMNS} FROM decisions WHERE {where} AND undone IS NULL ORDER BY id DESC LIMIT 1", values
        ).fetchone()
        return _decision(row) if row else None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._database_errors(), transaction(self._db):
            yield self._db

    @contextmanager
    def _database_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise TellapartError(f"{self.path}: not saved ({error})") from None


def bag_key(ids: Sequence[Any]) -> str:
    """Returns a bag's key in the decisions file: its ids, so that decisions remain valid if the bag is mined again."""
    return json.dumps([str(id_) for id_ in ids], ensure_ascii=False)


def decisions_of(bags: Path) -> Path:
    """Returns the default decisions file for a bags file."""
    return bags.with_name(f"{bags.stem}.review.sqlite")


def reviewer_name(name: str) -> str:
    """Normalizes white space in a name, so that 'Ann' and 'Ann ' are equal. Raises `UsageError` for invalid names."""
    plain = " ".join(unicodedata.normalize("NFC", name).split())
    if not plain or len(plain) > LONGEST_NAME or not plain.isprintable():
        raise UsageError(f"reviewer: expected 1 to {LONGEST_NAME} printable characters, got {name[:80]!r}")
    return plain


def checked_note(note: str) -> str:
    """Strips a note. Raises `UsageError` if it is too long."""
    if len(note) > LONGEST_NOTE:
        raise UsageError(f"note: expected at most {LONGEST_NOTE:,} characters, got {len(note):,}")
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", "", note).strip()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _decision(row: tuple[Any, ...]) -> Decision:
    """Converts a row of the table. Raises `UsageError` if `decide` cannot have written it, i.e. the file is damaged."""
    id_, at, reviewer, bag, verdict, facets, note, undone = row
    try:
        return Decision(id_, at, reviewer, bag, verdict, parse_json(facets), note, undone)
    except (ValueError, TypeError):
        raise UsageError(
            f"decision {id_} is damaged; restore the decisions file, or specify another one with --decisions"
        ) from None
