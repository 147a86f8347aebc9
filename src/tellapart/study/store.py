"""Stores the participants of a study and their answers.

An answer is committed before it is acknowledged and never overwritten. ``answers`` is a log: a later revision of a
position replaces the earlier one. Identifiers from recruitment platforms are in a separate table, so that they can be
deleted without the answers.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tellapart.errors import UsageError
from tellapart.study.databases import Database, PostgresDatabase, SqliteDatabase, Transaction
from tellapart.study.design import Study

ACTIVE, COMPLETE, SCREENED, EXPIRED, WITHDRAWN = "active", "complete", "screened_out", "expired", "withdrawn"
STORE = "answers.sqlite"
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS stamps (number INTEGER PRIMARY KEY, at DOUBLE PRECISION NOT NULL, stamp TEXT NOT NULL, "
    "reason TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS participants (number INTEGER PRIMARY KEY, block INTEGER NOT NULL, "
    "ordinal INTEGER NOT NULL, seed TEXT NOT NULL, status TEXT NOT NULL, started DOUBLE PRECISION NOT NULL, "
    "seen DOUBLE PRECISION NOT NULL, finished DOUBLE PRECISION, answered INTEGER NOT NULL, excluded TEXT NOT NULL, "
    "shown INTEGER NOT NULL, shown_at DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tokens (digest TEXT PRIMARY KEY, participant INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS identities (participant INTEGER PRIMARY KEY, identifier TEXT NOT NULL UNIQUE, "
    "study TEXT NOT NULL, session TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS answers (participant INTEGER NOT NULL, position INTEGER NOT NULL, "
    "revision INTEGER NOT NULL, trial INTEGER NOT NULL, options TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, "
    "seconds DOUBLE PRECISION, PRIMARY KEY (participant, position, revision))",
    "CREATE TABLE IF NOT EXISTS refusals (number INTEGER PRIMARY KEY, at DOUBLE PRECISION NOT NULL, "
    "reason TEXT NOT NULL)",
)
COLUMNS = "number, block, ordinal, seed, status, started, seen, finished, answered, excluded, shown, shown_at"


@dataclass(frozen=True)
class Participant:
    """A row of ``participants``. Times are seconds since 1970 (UTC).

    answered: number of answered positions.
    shown, shown_at: the position that the page last showed, and when.
    excluded: the reason for exclusion; "" if not excluded."""

    number: int
    block: int
    ordinal: int
    seed: str
    status: str
    started: float
    seen: float
    finished: float | None
    answered: int
    excluded: str
    shown: int
    shown_at: float


@dataclass(frozen=True)
class StudyAnswer:
    """The valid answer at a position: canonical ``options``, and the seconds since its page was shown."""

    participant: int
    position: int
    revision: int
    trial: int
    options: tuple[int, ...]
    at: float
    seconds: float | None


class AnswerStore:
    """The answers to one study. ``location``: a file, or the URL of a PostgreSQL database."""

    def __init__(self, database: Database, key: bytes) -> None:
        self.database, self.name, self.key = database, database.name, key

    @classmethod
    def open(cls, study: Study, location: str | Path, *, create: bool = True) -> AnswerStore:
        """Opens the database. Raises `UsageError` if it contains answers to another study."""
        database: Database
        if str(location).startswith(("postgres://", "postgresql://")):
            space = f"tellapart_{study.id}"
            database = PostgresDatabase.open(str(location), SCHEMA, space, create=create)
        else:
            database = SqliteDatabase.open(Path(location), SCHEMA, create=create)
        try:
            with database.transaction() as run:
                known: dict[str, str] = {row[0]: row[1] for row in run("SELECT name, value FROM secrets")}
                if known.setdefault("study", study.id) != study.id:
                    raise UsageError(
                        f"{database.name} contains answers to another study; specify another store with --store"
                    )
                known.setdefault("key", secrets.token_hex(32))
                for name, value in known.items():
                    run("INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, value))
        except BaseException:
            database.close()
            raise
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

    # Reads everything, for reports.

    def participants(self) -> list[Participant]:
        """Returns all participants, in the order in which they began."""
        with self.transaction() as run:
            return all_participants(run)

    def answers(self) -> list[StudyAnswer]:
        """Returns the valid answers, by participant and position."""
        with self.transaction() as run:
            rows = run("SELECT participant, position, revision, trial, options, at, seconds FROM answers "
                       "ORDER BY participant, position, revision")  # fmt: skip
        return list({(row[0], row[1]): answer_of(row) for row in rows}.values())

    def identities(self) -> dict[int, tuple[str, str, str]]:
        """Returns the platform's identifier, study and session, by participant."""
        with self.transaction() as run:
            rows = run("SELECT participant, identifier, study, session FROM identities ORDER BY participant")
        return {row[0]: (row[1], row[2], row[3]) for row in rows}

    def stamps(self) -> list[tuple[float, str, str]]:
        """Returns the stamps of the design: time, stamp, and (except for the first) the reason for the change."""
        with self.transaction() as run:
            return [(row[0], row[1], row[2]) for row in run("SELECT at, stamp, reason FROM stamps ORDER BY number")]

    def refusals(self) -> dict[str, int]:
        """Returns how many people did not take part, by reason."""
        with self.transaction() as run:
            return {row[0]: row[1] for row in run("SELECT reason, count(*) FROM refusals GROUP BY reason")}

    def set_stamp(self, stamp: str, at: float, reason: str = "") -> None:
        """Stamps the design. Raises `UsageError` if participants began with another stamp and no reason is given."""
        with self.transaction() as run:
            known = run("SELECT number, stamp FROM stamps ORDER BY number")
            begun = run("SELECT count(*) FROM participants")[0][0]
            if known and known[-1][1] == stamp:
                return
            if known and not begun:
                run("DELETE FROM stamps")
                known = []
            if known and not reason:
                raise UsageError(
                    f"the design was changed after {begun} participants began (it was "
                    f"{known[-1][1][:12]}, now {stamp[:12]}); undo the change, or pass --amend "
                    "'REASON', which the report will show"
                )
            if known and reason and known[-1][1] != stamp:
                run("INSERT INTO stamps VALUES (?, ?, ?, ?)", (known[-1][0] + 1, at, stamp, reason))
            elif not known:
                run("INSERT INTO stamps VALUES (1, ?, ?, '')", (at, stamp))

    def forget(self, identifier: str) -> bool:
        """Deletes a participant's answers and identifier. Returns whether the participant existed."""
        with self.transaction() as run:
            found = run("SELECT participant FROM identities WHERE identifier = ?", (identifier,))
            for (number,) in found:
                withdraw(run, number)
                run("DELETE FROM identities WHERE participant = ?", (number,))
                run("DELETE FROM tokens WHERE participant = ?", (number,))
        self.compact()
        return bool(found)

    def forget_identifiers(self) -> int:
        """Deletes all identifiers but keeps the answers. Returns the number of identifiers."""
        with self.transaction() as run:
            count: int = run("SELECT count(*) FROM identities")[0][0]
            run("DELETE FROM identities")
        self.compact()
        return count

    def compact(self) -> None:
        """Removes deleted data from the disk."""
        if isinstance(self.database, SqliteDatabase):
            self.database.compact()


# Statements within a transaction.


def all_participants(run: Transaction) -> list[Participant]:
    """Returns all participants, in the order in which they began."""
    return [Participant(*row) for row in run(f"SELECT {COLUMNS} FROM participants ORDER BY number")]


def participant_of(run: Transaction, token: str) -> Participant | None:
    """Returns the participant with this token, or None."""
    rows = run(f"SELECT {COLUMNS} FROM participants JOIN tokens ON participant = number WHERE digest = ?",
               (token_digest(token),))  # fmt: skip
    return Participant(*rows[0]) if rows else None


def participant_with(run: Transaction, identifier: str) -> Participant | None:
    """Returns the participant with this platform identifier, or None."""
    rows = run(f"SELECT {COLUMNS} FROM participants JOIN identities ON participant = number WHERE identifier = ?",
               (identifier,))  # fmt: skip
    return Participant(*rows[0]) if rows else None


def new_token(run: Transaction, number: int, wanted: str = "") -> str:
    """Creates a participant's token, which is the page's unless it belongs to someone else. Stores only its digest."""
    owner = participant_of(run, wanted) if wanted else None
    if owner is not None and owner.number == number:
        return wanted
    token = wanted if wanted and owner is None else secrets.token_urlsafe(24)
    run("INSERT INTO tokens VALUES (?, ?)", (token_digest(token), number))
    return token


def token_digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def add_participant(run: Transaction, block: int, ordinal: int, at: float) -> Participant:
    """Adds a participant, who starts with practice."""
    number = run("SELECT coalesce(max(number), 0) + 1 FROM participants")[0][0]
    seed = secrets.token_hex(8)
    made = Participant(number, block, ordinal, seed, ACTIVE, at, at, None, 0, "", -1, at)
    run(f"INSERT INTO participants ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(made))
    return made


def update(run: Transaction, one: Participant, **values: Any) -> Participant:
    """Updates some of a participant's columns and returns the updated participant."""
    names = ", ".join(f"{name} = ?" for name in values)
    run(f"UPDATE participants SET {names} WHERE number = ?", (*values.values(), one.number))
    return replace(one, **values)


def standing_answer(run: Transaction, number: int, position: int) -> StudyAnswer | None:
    """Returns the valid answer at a position, or None."""
    rows = run("SELECT participant, position, revision, trial, options, at, seconds FROM answers "
               "WHERE participant = ? AND position = ? ORDER BY revision DESC LIMIT 1", (number, position))  # fmt: skip
    return answer_of(rows[0]) if rows else None


def standing_answers(run: Transaction, number: int) -> list[StudyAnswer]:
    """Returns a participant's valid answers, by position."""
    rows = run("SELECT participant, position, revision, trial, options, at, seconds FROM answers "
               "WHERE participant = ? ORDER BY position, revision", (number,))  # fmt: skip
    return list({row[1]: answer_of(row) for row in rows}.values())


def write_answer(run: Transaction, answer: StudyAnswer) -> None:
    """Appends an answer to the log."""
    run("INSERT INTO answers (participant, position, revision, trial, options, at, seconds) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (answer.participant, answer.position, answer.revision, answer.trial, json.dumps(answer.options), answer.at,
         answer.seconds))  # fmt: skip


def withdraw(run: Transaction, number: int) -> None:
    """Deletes a participant's answers and marks the participant as withdrawn."""
    run("DELETE FROM answers WHERE participant = ?", (number,))
    run("UPDATE participants SET status = ? WHERE number = ?", (WITHDRAWN, number))


def add_refusal(run: Transaction, at: float, reason: str) -> None:
    """Counts a person who does not take part. Stores nothing about them."""
    run("INSERT INTO refusals SELECT coalesce(max(number), 0) + 1, ?, ? FROM refusals", (at, reason))


def answer_of(row: Sequence[Any]) -> StudyAnswer:
    """Converts a row of ``answers``. Raises `UsageError` for a damaged row."""
    try:
        options = json.loads(row[4])
    except ValueError:
        options = None
    if not isinstance(options, list) or not all(isinstance(option, int) for option in options):
        raise UsageError(f"answer {row[1]} of participant {row[0]} is damaged; restore the store from a backup")
    return StudyAnswer(row[0], row[1], row[2], row[3], tuple(options), row[5], row[6])


def moment(at: float) -> str:
    """Formats seconds since 1970 as an ISO time."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
