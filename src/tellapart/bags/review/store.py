"""Decisions of reviewers in SQLite: each is on disk before it is answered, and none is ever overwritten.

The table is a log. A later decision on the same bag stands in place of the earlier one, and undoing marks a row, so the
earlier one stands again. Several processes may write at once (WAL, one transaction a decision).
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tellapart.errors import TellapartError, UsageError
from tellapart.utils.json_text import parse_json
from tellapart.utils.sqlite import FileKind, open_sqlite, transaction

# What tells the pictures of a bag apart (paper 2, section 3.2, names the first four).
FACETS = ("position", "action", "orientation", "attribute", "count", "text", "object", "other")
VERDICTS = ("keep", "drop")
LONGEST_NAME, LONGEST_NOTE = 60, 2000
APPLICATION = 0x7E11A9A7 & 0x7FFFFFFF  # SQLite's field for whose file it is
FORMAT = 1
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
FILE = FileKind("decisions", "--decisions", APPLICATION, FORMAT, (TABLE, INDEX))
COLUMNS = "id, at, reviewer, bag, verdict, facets, note, undone"


@dataclass(frozen=True)
class Decision:
    """One reviewer's decision on one bag and its time (UTC). ``undone``: the time at which it was undone, or None."""

    id: int
    at: str
    reviewer: str
    bag: str
    verdict: str
    facets: tuple[str, ...] = ()
    note: str = ""
    undone: str | None = None


class Conflict(TellapartError):
    """Another window of the same reviewer was faster; ``current`` is the valid decision."""

    def __init__(self, message: str, current: Decision | None) -> None:
        super().__init__(message)
        self.current = current


class DecisionStore:
    """The file of decisions. Safe from several threads; raises `TellapartError` where the disk fails."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path, self._db = path, db
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> DecisionStore:
        """Open the file. Raises `UsageError` for a file of something else, or none where it is not to be made."""
        if not create and not path.is_file():
            raise UsageError(f"{path}: no decisions there; type: tellapart bags review BAGS.jsonl")
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
        """Save a decision. A repeated request (after a lost reply) saves it once.

        replaces: the id of this reviewer's decision on the bag that the reviewer has seen, None for none. Where
        another stands by now, `Conflict`. Raises `UsageError` for an unknown verdict or facet.
        """
        reviewer, note = reviewer_name(reviewer), checked_note(note)
        if verdict not in VERDICTS:
            raise UsageError(f"the verdict '{verdict}'; expected {' or '.join(VERDICTS)}")
        if unknown := sorted(set(facets) - set(FACETS)):
            raise UsageError(f"the facet '{unknown[0]}'; expected some of {', '.join(FACETS)}")
        chosen = tuple(facet for facet in FACETS if facet in facets)
        with self._transaction() as db:
            current = self._last(db, "reviewer = ? AND bag = ?", (reviewer, bag))
            if (current.id if current else None) != replaces:
                if current and (current.verdict, current.facets, current.note) == (verdict, chosen, note):
                    return current
                raise Conflict(f"{reviewer} has decided on this bag in another window", current)
            written = db.execute(
                "INSERT INTO decisions (at, reviewer, bag, verdict, facets, note) VALUES (?, ?, ?, ?, ?, ?)",
                (now(), reviewer, bag, verdict, json.dumps(chosen), note),
            )
            row = db.execute(f"SELECT {COLUMNS} FROM decisions WHERE id = ?", (written.lastrowid,)).fetchone()
        return _decision(row)

    def undo(self, reviewer: str, decision: int) -> Decision:
        """Take back the reviewer's latest decision, which must be this one (`Conflict` otherwise)."""
        with self._transaction() as db:
            last = self._last(db, "reviewer = ?", (reviewer_name(reviewer),))
            if last is None or last.id != decision:
                raise Conflict(f"{reviewer} has decided or undone something in another window", last)
            db.execute("UPDATE decisions SET undone = ? WHERE id = ?", (now(), decision))
        return last

    def standing(self, reviewer: str | None = None) -> list[Decision]:
        """The decisions that stand, of one reviewer or of all: one for each reviewer and bag, oldest first."""
        latest = {(d.reviewer, d.bag): d for d in self.log() if d.undone is None}
        found = sorted(latest.values(), key=lambda decision: decision.id)
        return [decision for decision in found if reviewer is None or decision.reviewer == reviewer]

    def log(self) -> list[Decision]:
        """Everything that was ever decided, oldest first."""
        with self._lock, self._database_errors():
            return [_decision(row) for row in self._db.execute(f"SELECT {COLUMNS} FROM decisions ORDER BY id")]

    def close(self) -> None:
        """Merge the write-ahead log into the file and close it."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> DecisionStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _last(db: sqlite3.Connection, where: str, values: tuple[str, ...]) -> Decision | None:
        found = db.execute(
            f"SELECT {COLUMNS} FROM decisions WHERE {where} AND undone IS NULL ORDER BY id DESC LIMIT 1", values
        ).fetchone()
        return _decision(found) if found else None

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
    """The key of a bag in the file of decisions: its ids, so that a bag that is mined again keeps its decisions."""
    return json.dumps([str(id_) for id_ in ids], ensure_ascii=False)


def reviewer_name(name: str) -> str:
    """A name with its blanks in order, so that 'Ann' and 'Ann ' are one. Raises `UsageError`."""
    plain = " ".join(unicodedata.normalize("NFC", name).split())
    if not plain or len(plain) > LONGEST_NAME or not plain.isprintable():
        raise UsageError(f"a reviewer's name has 1 to {LONGEST_NAME} printable characters; found {name[:80]!r}")
    return plain


def checked_note(note: str) -> str:
    """A note without blanks around it; `UsageError` where it is too long."""
    if len(note) > LONGEST_NOTE:
        raise UsageError(f"a note of {len(note):,} characters; at most {LONGEST_NOTE:,}")
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", "", note).strip()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _decision(row: tuple[Any, ...]) -> Decision:
    """A row of the table. Raises `UsageError` for one that `decide` did not write: the file is damaged."""
    id_, at, reviewer, bag, verdict, facets, note, undone = row
    try:
        named = parse_json(facets)
    except (ValueError, TypeError):
        named = None
    texts = (at, reviewer, bag, note, undone or "", *(named if isinstance(named, list) else [None]))
    if verdict not in VERDICTS or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"decision {id_} is damaged; restore the file of decisions, or name another with --decisions")
    return Decision(id_, at, reviewer, bag, verdict, tuple(named), note, undone)
