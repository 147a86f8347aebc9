"""Changes of captions, as the journal records them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tellapart.captions.authors import PERSON, Author


@dataclass(frozen=True)
class JournaledRun:
    """A command's change to many texts, for the journal (`captions.journal`): its id and its head line."""

    change: str
    head: str


@dataclass
class RowChange:
    """A change to one row. ``after``: the hash of the new text, None if it was removed; ``text``: whether the text
    changed.

    ``source``: if the text followed its renamed picture, its previous row in this log, or "" if that row is in another
    log; otherwise None.
    """

    before: str | None = None
    after: str | None = None
    text: bool = False
    state: dict[str, Any] | None = None
    was: dict[str, Any] = field(default_factory=dict)
    author: Author = PERSON
    source: str | None = None

    def add(self, value: Mapping[str, Any], author: Author) -> None:
        """Merges another line of the same change: keeps the earliest text before it and the latest text after it."""
        self.source = value.get("from", self.source)
        if "state" in value:
            self.was = dict(value.get("was") or {}) if self.state is None else self.was
            self.state = dict(value["state"])
        if {"text", "person", "removed"} & value.keys():
            self.before = self.before if self.text else value.get("before")
            self.after = None if value.get("removed") else str(value.get("text", value.get("person")))
            self.text, self.author = True, author


@dataclass
class JournalChange:
    """One change to any number of rows. ``id`` begins with the time in UTC; ``undoes``: the changes that it reverts."""

    id: str
    what: str
    author: Author
    undoes: tuple[str, ...] = ()
    rows: dict[tuple[str, str], RowChange] = field(default_factory=dict)

    @property
    def time(self) -> str:
        """Returns its time in UTC, such as ``2026-11-28T00:30:00``."""
        return self.id[:19]


def new_change_id() -> str:
    """Creates the id for a change that begins now; ids sort by time."""
    now = time.time_ns() // 1000
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**6))
    return f"{seconds}.{now % 10**6:06d}Z-{os.urandom(2).hex()}"


def head_line(change: str, what: str, author: Author, undoes: Sequence[str] = ()) -> str:
    """Returns the head line of a change."""
    value: dict[str, Any] = {"change": change, "what": what}
    value |= {"by": author.to_json()} if not author.is_person else {}
    return json.dumps(value | ({"undoes": list(undoes)} if undoes else {})) + "\n"


def new_run(what: str, author: Author, undoes: Sequence[str] = ()) -> JournaledRun:
    """Creates a change for the texts that a command is about to write."""
    change = new_change_id()
    return JournaledRun(change, head_line(change, what, author, undoes))
