"""Reviewers' decisions in SQLite, their agreement, and the benchmark exported from them.

Each decision is on disk before it is acknowledged, and none is ever overwritten. The table is a log: a later decision
on a bag replaces the earlier one, and undo marks a row, so that the earlier decision is valid again. Several processes
may write concurrently (WAL, one transaction per decision).
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import threading
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

from tellapart.bags.file import BAGS_FORMAT, KIND, Bag, BagsFile, read_bags, write_truematch
from tellapart.errors import TellapartError, UsageError
from tellapart.utils.outputs import check_output, remove_output, write_output
from tellapart.utils.sqlite import FileKind, open_sqlite, transaction
from tellapart.utils.strict_json import parse_json

# Differences between the pictures in a bag (paper 2, section 3.2, lists the first four).
FACETS = ("position", "action", "orientation", "attribute", "count", "text", "object", "other")
VERDICTS = ("keep", "drop")
LONGEST_NAME, LONGEST_NOTE = 60, 2000
APPLICATION = 0x7E11A9A7 & 0x7FFFFFFF  # SQLite's field for the application that a file belongs to
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


@dataclass(frozen=True)
class Decision:
    """One reviewer's decision on one bag, and when it was made (UTC). ``undone``: when it was undone, or None."""

    id: int
    at: str
    reviewer: str
    bag: str
    verdict: str
    facets: tuple[str, ...] = ()
    note: str = ""
    undone: str | None = None


class Conflict(TellapartError):
    """Another window of the same reviewer saved first; ``current`` is the valid decision."""

    def __init__(self, message: str, current: Decision | None) -> None:
        super().__init__(message)
        self.current = current


class DecisionStore:
    """The decisions file. Thread-safe; raises `TellapartError` for disk errors."""

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

        replaces: id of the reviewer's previous decision on the bag that the page showed; None: no decision.
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
        latest = {(d.reviewer, d.bag): d for d in self.log() if d.undone is None}
        decisions = sorted(latest.values(), key=lambda decision: decision.id)
        return [decision for decision in decisions if reviewer is None or decision.reviewer == reviewer]

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
        named = parse_json(facets)
    except (ValueError, TypeError):
        named = None
    texts = (at, reviewer, bag, note, undone or "", *(named if isinstance(named, list) else [None]))
    if verdict not in VERDICTS or not all(isinstance(text, str) for text in texts):
        raise UsageError(
            f"decision {id_} is damaged; restore the decisions file, or specify another one with --decisions"
        )
    return Decision(id_, at, reviewer, bag, verdict, tuple(named), note, undone)


@dataclass(frozen=True)
class ReviewerAgreement:
    """The agreement of two reviewers on the ``bags`` that both have judged.

    agreed: share of equal verdicts.
    kappa: κ of the verdicts.
    facets: κ of each facet (selected or not) on the ``kept`` bags that both keep.
    κ is None if it is undefined: no bag in common, or both always gave the same answer.
    """

    reviewers: tuple[str, str]
    bags: int
    agreed: float | None
    kappa: float | None
    kept: int
    facets: dict[str, float | None]

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON of the page and of review.json."""
        return asdict(self)


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Computes Cohen's κ, the agreement of two raters beyond chance, −1 to 1 (Cohen, 1960).

    κ = (p_o − p_e) / (1 − p_e), where p_o is the share of equal labels and p_e the agreement expected by chance from
    the raters' label shares. None if there are no ratings or p_e = 1. Raises `ValueError` if the lengths differ.
    """
    if len(first) != len(second):
        raise ValueError(f"both raters must have rated the same items, got {len(first)} and {len(second)} ratings")
    n = len(first)
    one, two = Counter(first), Counter(second)
    # Integers, so that p_e = 1 is detected exactly and 1 − p_e is never a rounding error.
    equal = sum(a == b for a, b in zip(first, second, strict=True))
    chance = sum(one[label] * two[label] for label in one)
    if n * n == chance:  # also true for n = 0
        return None
    return (n * equal - chance) / (n * n - chance)


def agreements(decisions: Iterable[Decision]) -> list[ReviewerAgreement]:
    """Computes the agreement of every pair of reviewers, by name, from the valid decisions."""
    by_reviewer: dict[str, dict[str, Decision]] = {}
    for decision in decisions:
        by_reviewer.setdefault(decision.reviewer, {})[decision.bag] = decision
    return [_pair((a, b), by_reviewer[a], by_reviewer[b]) for a, b in combinations(sorted(by_reviewer), 2)]


def _pair(names: tuple[str, str], first: dict[str, Decision], second: dict[str, Decision]) -> ReviewerAgreement:
    both = [(first[bag], second[bag]) for bag in first if bag in second]
    kept = [(a, b) for a, b in both if a.verdict == b.verdict == "keep"]
    return ReviewerAgreement(
        reviewers=names,
        bags=len(both),
        agreed=sum(a.verdict == b.verdict for a, b in both) / len(both) if both else None,
        kappa=cohen_kappa([a.verdict for a, _ in both], [b.verdict for _, b in both]),
        kept=len(kept),
        facets={
            facet: cohen_kappa([facet in a.facets for a, _ in kept], [facet in b.facets for _, b in kept])
            for facet in FACETS
        },
    )


RULES = ("majority", "all", "any")
PROVENANCE = "tellapart review"


@dataclass(frozen=True)
class Exported:
    """The exported files, and the numbers of bags."""

    folder: Path
    kept: int
    dropped: int
    undecided: int
    reviewers: tuple[str, ...]
    kappa: float | None

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON of ``bags export --json``."""
        return {**asdict(self), "folder": str(self.folder)}


def export_review(bags: Path, decisions: Path, out: Path, rule: str = "majority") -> Exported:
    """Writes ``bags.jsonl``, TrueMatch's ``{size}.json`` and ``review.json`` (all decisions, including undone ones).

    rule: keeps a bag if more reviewers keep than drop it (majority; ties drop it), if all reviewers who decided keep
        it, or if any reviewer keeps it.
    Bags without a decision are left out and counted. All commands can read the ``bags.jsonl``; its bags have their
    decisions and the facets selected by reviewers who keep the bag. Raises `UsageError` if no bag is kept, or if
    ``out`` would overwrite the bags.
    """
    if rule not in RULES:
        raise UsageError(f"--keep {rule}: expected one of {', '.join(RULES)}")
    file = read_bags(bags)
    if (out / "bags.jsonl").resolve() == bags.resolve():
        raise UsageError(f"-o {out}: this folder contains {bags.name} itself; choose another folder")
    for name in ("bags.jsonl", "review.json"):
        check_output(out / name)
    with DecisionStore.open(decisions, create=False) as store:
        standing, log = store.standing(), store.log()
    known = {bag_key(bag.ids) for bag in file.bags}
    of_bag: dict[str, list[Decision]] = {}
    for decision in standing:
        if decision.bag in known:
            of_bag.setdefault(decision.bag, []).append(decision)
    kept = [bag for bag in file.bags if _keeps(of_bag.get(bag_key(bag.ids), ()), rule)]
    if not kept:
        raise UsageError(
            f"{decisions}: none of the {len(of_bag)} reviewed bags of {bags} was kept, so the benchmark would be empty"
        )
    pairs = agreements([decision for own in of_bag.values() for decision in own])
    kappas = [pair.kappa for pair in pairs if pair.kappa is not None]
    exported = Exported(
        folder=out,
        kept=len(kept),
        dropped=len(of_bag) - len(kept),
        undecided=len(known) - len(of_bag),
        reviewers=tuple(sorted({decision.reviewer for own in of_bag.values() for decision in own})),
        kappa=sum(kappas) / len(kappas) if kappas else None,
    )
    provenance = {
        "kind": PROVENANCE,
        "exported": now(),
        "rule": rule,
        "source": {"file": bags.name, "sha256": hashlib.sha256(bags.read_bytes()).hexdigest()},
        **{name: value for name, value in exported.to_json().items() if name != "folder"},
        "agreement": [pair.to_json() for pair in pairs],
    }
    _write(out, file, kept, of_bag, provenance, log, known)
    return exported


def _keeps(decisions: Sequence[Decision], rule: str) -> bool:
    keep = sum(decision.verdict == "keep" for decision in decisions)
    drop = len(decisions) - keep
    return keep > 0 and {"majority": keep > drop, "all": drop == 0, "any": True}[rule]


def _write(
    out: Path,
    file: BagsFile,
    kept: list[Bag],
    of_bag: dict[str, list[Decision]],
    provenance: dict[str, Any],
    log: list[Decision],
    known: set[str],
) -> None:
    _remove_earlier(out)
    header = replace(file.header, sizes=tuple(sorted({len(bag) for bag in kept})))
    lines: list[dict[str, Any]] = [{"kind": KIND, "format": BAGS_FORMAT, **asdict(header), "review": provenance}]
    for bag in kept:
        own = of_bag[bag_key(bag.ids)]
        facets = list(dict.fromkeys(facet for d in own if d.verdict == "keep" for facet in d.facets))
        alpha = bag.similarity if bag.similarity == bag.similarity else None  # JSON has no NaN
        lines.append(
            {
                "ids": list(bag.ids),
                "similarity": alpha,
                "facets": facets,
                "decisions": [_decision_entry(d) for d in own],
            }
        )
    write_output(out / "bags.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    files = [path.name for path in write_truematch(out, kept)]
    whole = {
        **provenance,
        "files": files,
        "decisions": [
            {"bag": _ids(d), **_decision_entry(d), "undone": d.undone, "in_file": d.bag in known} for d in log
        ],
    }
    write_output(out / "review.json", json.dumps(whole, ensure_ascii=False, indent=1) + "\n")


def _ids(decision: Decision) -> list[str]:
    """Returns the ids of the decision's bag."""
    try:
        ids = parse_json(decision.bag)
    except ValueError:
        ids = None
    if not isinstance(ids, list) or not all(isinstance(id_, str) for id_ in ids):
        raise UsageError(f"decision {decision.id} is damaged and refers to no bag; restore the decisions file")
    return ids


def _remove_earlier(out: Path) -> None:
    """Removes the size files of an earlier export, such as 7.json, which could be mistaken for part of this one."""
    try:
        earlier = parse_json((out / "review.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(earlier, dict) and earlier.get("kind") == PROVENANCE:
        for name in earlier.get("files", ()):
            if str(name).removesuffix(".json").isdecimal():
                remove_output(out / str(name))


def _decision_entry(decision: Decision) -> dict[str, Any]:
    return {
        "reviewer": decision.reviewer,
        "at": decision.at,
        "verdict": decision.verdict,
        "facets": list(decision.facets),
        "note": decision.note,
    }
