"""Describes a change that the journal records: creates its id and its head line."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tellapart.captions.authors import Author


@dataclass(frozen=True)
class JournaledRun:
    """The change that a command makes to many texts, as the journal records it: its id and its head line."""

    change: str
    head: str


def new_change_id() -> str:
    """Creates an id for a change that starts now. Ids sort chronologically."""
    now = time.time_ns() // 1000
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**6))
    return f"{seconds}.{now % 10**6:06d}Z-{os.urandom(2).hex()}"


def head_line(change: str, what: str, author: Author, undoes: Sequence[str] = ()) -> str:
    """Returns the line with which the journal introduces a change."""
    value: dict[str, Any] = {"change": change, "what": what}
    value |= {"by": author.to_json()} if not author.is_person else {}
    return json.dumps(value | ({"undoes": list(undoes)} if undoes else {})) + "\n"


def new_run(what: str, author: Author, undoes: Sequence[str] = ()) -> JournaledRun:
    """Creates a change for the texts that a command is about to write."""
    change = new_change_id()
    return JournaledRun(change, head_line(change, what, author, undoes))
