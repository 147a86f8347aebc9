"""Stores a study's participants and their answers.

An answer is committed before it is acknowledged, and it is never overwritten. The table ``answers`` is a log, in which
a later revision of an answer supersedes earlier ones. Identifiers from recruitment platforms are in a separate table,
so that they can be deleted while the answers are kept.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tellapart.errors import UsageError
from tellapart.study.databases import Database, PostgresDatabase, Row, SqliteDatabase, Transaction
from tellapart.study.design import Study

ACTIVE, COMPLETE, WITHDRAWN = "active", "complete", "withdrawn"
STORE = "answers.sqlite"
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS stamps (number INTEGER PRIMARY KEY, at DOUBLE PRECISION NOT NULL, stamp TEXT NOT NULL, "
    "reason TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS participants (number INTEGER PRIMARY KEY, block INTEGER NOT NULL, "
    "ordinal INTEGER NOT NULL, seed TEXT NOT NULL, status TEXT NOT NULL, started DOUBLE PRECISION NOT NULL, "
    "seen DOUBLE PRECISION NOT NULL, shown INTEGER NOT NULL, answered INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tokens (digest TEXT PRIMARY KEY, participant INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS identities (participant INTEGER PRIMARY KEY, identifier TEXT NOT NULL UNIQUE)",
    "CREATE TABLE IF NOT EXISTS answers (participant INTEGER NOT NULL, position INTEGER NOT NULL, "
    "revision INTEGER NOT NULL, trial INTEGER NOT NULL, options TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, "
    "seconds DOUBLE PRECISION, PRIMARY KEY (participant, position, revision))",
    "CREATE TABLE IF NOT EXISTS refusals (number INTEGER PRIMARY KEY, at DOUBLE PRECISION NOT NULL, "
    "reason TEXT NOT NULL)",
)


@dataclass(frozen=True)
class Participant:
    """A row in the table ``participants``. Times are in seconds since 1970 (UTC).

    status: active, complete (clicked Finish) or withdrawn.
    seen, shown: when the page last showed an item, and the item's position.
    answered: number of answered positions.
    """

    number: int
    block: int
    ordinal: int
    seed: str
    status: str
    started: float
    seen: float
    shown: int
    answered: int


@dataclass(frozen=True)
class StudyAnswer:
    """The valid answer at a position. ``options`` are canonical.

    ``seconds``: the time since the item was shown; None if the page has shown another item since, as a second window
    does.
    """

    participant: int
    position: int
    revision: int
    trial: int
    options: tuple[int, ...]
    at: float
    seconds: float | None


PARTICIPANTS = f"SELECT {', '.join(field.name for field in fields(Participant))} FROM participants"
ANSWERS = f"SELECT {', '.join(field.name for field in fields(StudyAnswer))} FROM answers"
_OPTIONS = TypeAdapter(tuple[int, ...])


class AnswerStore:
    """The store for one study's answers. ``key``: the study's secret key."""

    def __init__(self, database: Database, key: bytes) -> None:
        self.database, self.name, self.key = database, database.name, key

    @classmethod
    def open(cls, study: Study, location: str | Path, *, create: bool = True) -> AnswerStore:
        """Opens the store in a file or, if ``location`` is a URL, in a PostgreSQL database. Raises `UsageError` if it
        contains answers to another study.
        """
        database: Database
        if str(location).startswith(("postgres://", "postgresql://")):
            database = PostgresDatabase(str(location), f"tellapart_{study.id}", SCHEMA, create=create)
        else:
            database = SqliteDatabase(Path(location), SCHEMA, create=create)
        with database.transaction() as run:
            for name, value in (("study", study.id), ("key", secrets.token_hex(32))):
                run("INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, value))
            known = dict(run("SELECT name, value FROM secrets"))
        if known["study"] != study.id:
            database.close()
            raise UsageError(f"{database.name} contains answers to another study; specify another store with --store")
        return cls(database, bytes.fromhex(known["key"]))

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Opens a transaction that locks out other writers until it commits. Raises `StoreError`."""
        return self.database.transaction()

    def close(self) -> None:
        """Closes the database."""
        self.database.close()

    def __enter__(self) -> AnswerStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading everything, for reports.

    def read(self, sql: str) -> list[Row]:
        """Runs a statement in a separate transaction and returns its rows."""
        with self.transaction() as run:
            return run(sql)

    def participants(self) -> list[Participant]:
        """Returns all participants, in the order in which they began."""
        with self.transaction() as run:
            return all_participants(run)

    def answers(self) -> list[StudyAnswer]:
        """Returns the valid answers, sorted by participant and position."""
        return valid_answers(self.read(f"{ANSWERS} ORDER BY participant, position, revision"))

    def identities(self) -> dict[int, str]:
        """Returns a dict from participants to the platform's identifiers."""
        return dict(self.read("SELECT participant, identifier FROM identities ORDER BY participant"))

    def stamps(self) -> list[dict[str, str]]:
        """Returns the design's stamps, each with its time (``at``), the ``stamp``, and the ``reason`` for a change."""
        rows = self.read("SELECT at, stamp, reason FROM stamps ORDER BY number")
        return [{"at": moment(at), "stamp": stamp, "reason": reason} for at, stamp, reason in rows]

    def refusals(self) -> dict[str, int]:
        """Returns how many people did not take part for each reason."""
        return dict(self.read("SELECT reason, count(*) FROM refusals GROUP BY reason"))

    def set_stamp(self, stamp: str, at: float, reason: str = "") -> None:
        """Stamps the design. Raises `UsageError` if participants began with another stamp and no reason is given."""
        with self.transaction() as run:
            begun = run("SELECT count(*) FROM participants")[0][0]
            if not begun:  # until the first participant begins, the design may change
                run("DELETE FROM stamps WHERE stamp <> ?", (stamp,))
            known = run("SELECT stamp FROM stamps ORDER BY number DESC LIMIT 1")
            if known == [(stamp,)]:
                return
            if known and not reason:
                raise UsageError(
                    f"the design was changed after {begun} participants began (it was "
                    f"{known[0][0][:12]}, now {stamp[:12]}); undo the change, or pass --amend "
                    "'REASON', which the report will show"
                )
            run("INSERT INTO stamps SELECT coalesce(max(number), 0) + 1, ?, ?, ? FROM stamps",
                (at, stamp, reason if known else ""))  # fmt: skip

    def forget(self, identifier: str) -> bool:
        """Deletes a participant's answers and identifier. Returns whether the participant existed."""
        with self.transaction() as run:
            one = participant_with(run, identifier)
            if one is not None:
                withdraw(run, one)
                for table in ("identities", "tokens"):
                    run(f"DELETE FROM {table} WHERE participant = ?", (one.number,))
        self.database.compact()
        return one is not None

    def forget_identifiers(self) -> int:
        """Deletes all identifiers but keeps the answers. Returns the number of deleted identifiers."""
        with self.transaction() as run:
            count: int = run("SELECT count(*) FROM identities")[0][0]
            run("DELETE FROM identities")
        self.database.compact()
        return count


# Statements that run inside a transaction.


def all_participants(run: Transaction) -> list[Participant]:
    """Returns all participants, in the order in which they began."""
    return [Participant(*row) for row in run(f"{PARTICIPANTS} ORDER BY number")]


def participant_of(run: Transaction, token: str) -> Participant | None:
    """Returns the participant with this token, or None."""
    rows = run(f"{PARTICIPANTS} JOIN tokens ON participant = number WHERE digest = ?", (token_digest(token),))
    return Participant(*rows[0]) if rows else None


def participant_with(run: Transaction, identifier: str) -> Participant | None:
    """Returns the participant with this platform identifier, or None."""
    rows = run(f"{PARTICIPANTS} JOIN identities ON participant = number WHERE identifier = ?", (identifier,))
    return Participant(*rows[0]) if rows else None


def token_digest(token: str) -> str:
    """Returns the digest that is stored instead of a token, because the token cannot be derived from it."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def add_participant(run: Transaction, block: int, token: str, at: float, identifier: str = "") -> Participant:
    """Adds a participant, who starts with the practice items. ``identifier``: the platform's, if it gave one."""
    number = run("SELECT coalesce(max(number), 0) + 1 FROM participants")[0][0]
    ordinal = run("SELECT count(*) FROM participants WHERE block = ?", (block,))[0][0]
    one = Participant(number, block, ordinal, secrets.token_hex(8), ACTIVE, at, at, 0, 0)
    run("INSERT INTO participants VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(one))
    run("INSERT INTO tokens VALUES (?, ?)", (token_digest(token), number))
    if identifier:
        run("INSERT INTO identities VALUES (?, ?)", (number, identifier))
    return one


def update(run: Transaction, one: Participant, **values: Any) -> Participant:
    """Updates some of a participant's columns and returns the updated participant."""
    names = ", ".join(f"{name} = ?" for name in values)
    run(f"UPDATE participants SET {names} WHERE number = ?", (*values.values(), one.number))
    return replace(one, **values)


def answers_of(run: Transaction, one: Participant) -> list[StudyAnswer]:
    """Returns a participant's valid answers, sorted by position."""
    return valid_answers(run(f"{ANSWERS} WHERE participant = ? ORDER BY position, revision", (one.number,)))


def answer_at(run: Transaction, one: Participant, position: int) -> StudyAnswer | None:
    """Returns a participant's valid answer at a position, or None if there is none."""
    key = one.number, position
    return next(
        iter(valid_answers(run(f"{ANSWERS} WHERE participant = ? AND position = ? ORDER BY revision", key))), None
    )


def write_answer(run: Transaction, answer: StudyAnswer) -> None:
    """Appends an answer to the log."""
    row = {**vars(answer), "options": json.dumps(answer.options)}
    run("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", tuple(row.values()))


def withdraw(run: Transaction, one: Participant) -> None:
    """Deletes a participant's answers and marks the participant as withdrawn."""
    run("DELETE FROM answers WHERE participant = ?", (one.number,))
    update(run, one, status=WITHDRAWN)


def add_refusal(run: Transaction, at: float, reason: str) -> None:
    """Counts a person who does not take part. Stores nothing else about the person."""
    run("INSERT INTO refusals SELECT coalesce(max(number), 0) + 1, ?, ? FROM refusals", (at, reason))


def valid_answers(rows: Sequence[Row]) -> list[StudyAnswer]:
    """Returns the last revision at each position. Raises `UsageError` if an answer is damaged.

    rows: rows of the table ``answers``, in ascending order of revision.
    """
    answers = {}
    for participant, position, revision, trial, text, at, seconds in rows:
        try:
            options = _OPTIONS.validate_json(text)
        except ValidationError:
            raise UsageError(
                f"answer {position} of participant {participant} is damaged; restore the store from a backup"
            ) from None
        answers[participant, position] = StudyAnswer(participant, position, revision, trial, options, at, seconds)
    return list(answers.values())


def moment(at: float) -> str:
    """Formats seconds since 1970 as an ISO time."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
