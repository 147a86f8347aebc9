"""Stamps verdicts: a verdict is given once per settings, and verdicts are numbered permanently.

Each question has one file with all of its verdicts. An entry is written when a verdict begins, so that interrupted
verdicts are on record, too. Running with the same settings completes them.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tellapart.errors import TellapartError, UsageError
from tellapart.utils.atomic_writes import replace_text
from tellapart.utils.locks import locked
from tellapart.utils.messages import say
from tellapart.utils.write_errors import write_errors

PACKAGE = Path(__file__).parents[1]


def read_verdicts(path: Path) -> list[dict[str, Any]]:
    """Reads all verdicts, including unfinished ones, oldest first. Raises `TellapartError` if the file is damaged."""
    if not path.is_file():
        return []
    try:
        return [dict(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    except (ValueError, TypeError) as error:
        raise TellapartError(f"{path} is not a list of verdicts ({error}); restore it from the repository") from None


def given_verdict(path: Path, settings: str) -> dict[str, Any] | None:
    """Returns the finished verdict for these settings; None if there is none."""
    return next((one for one in read_verdicts(path) if _is_of(one, settings) and one["stamp"]["date"]), None)


def give_verdict(path: Path, settings: str, run: Callable[[], Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """Returns ``{**run(), "stamp": {number, begun, date, commit, settings, **more}}`` and stores it in ``path``.

    settings: the fingerprint of all settings. If a verdict with the same settings exists, runs nothing and returns it.
    Re-raises exceptions of ``run``; the entry then stays marked as begun.
    """
    if earlier := given_verdict(path, settings):
        say(f"this verdict was given on {earlier['stamp']['date']} and cannot be repeated with the same settings")
        return earlier
    with _updating(path) as given:
        entry = next((one for one in given if _is_of(one, settings)), None)
        if entry is None:
            entry = {"stamp": {"number": len(given) + 1, "begun": now(), "date": "", "commit": commit()}}
            entry["stamp"] |= {"settings": settings, **more}
            given.append(entry)
        else:
            say(f"verdict {entry['stamp']['number']} was started on {entry['stamp']['begun']} and is finished now")
    entry |= {**run(), "stamp": {**entry["stamp"], "date": now()}}
    if (last := commit()) != entry["stamp"]["commit"]:
        entry["stamp"]["commit_at_end"] = last
    with _updating(path) as given:
        given[:] = [entry if _is_of(one, settings) else one for one in given]
    return entry


@contextmanager
def _updating(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Yields all verdicts in the file, and writes them back at the end, under a lock."""
    with write_errors(path, "cannot save the verdict; make the folder writable"), locked(path.parent, wait=True):
        given = read_verdicts(path)
        yield given
        replace_text(path, json.dumps(given, indent=1, ensure_ascii=False) + "\n")


def _is_of(entry: Mapping[str, Any], settings: str) -> bool:
    return bool(entry["stamp"]["settings"] == settings)


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M")


def commit() -> str:
    """Returns the commit of the running code, with "-dirty" if there are uncommitted changes; "" outside a clone."""
    found = _git("rev-parse", "--short", "HEAD")
    code = (
        "src",
        "replication",
        ":(exclude)replication/records",
    )  # uncommitted changes include the lock of this record
    return found + ("-dirty" if found and _git("status", "--porcelain", "--", *code) else "")


def require_commit(typed: str) -> None:
    """Raises `UsageError` outside a clone of the project. typed: the command to suggest instead."""
    if not commit():
        raise UsageError(
            "a verdict records the commit of the project's repository, but this is not a clone of it; to check "
            f"the findings on seeds that the project never uses, run: {typed} --seeds 100,101,102,103,104"
        )


def _git(*arguments: str) -> str:
    try:
        found = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return ""
    return found.stdout.strip()


def stamp_line(stamp: Mapping[str, Any]) -> str:
    """Formats a stamp: "verdict 1, 2026-11-23 04:12, commit 1a2b3c4, settings 0f1e2d3c"."""
    shown = ("number", "begun", "date", "commit", "commit_at_end", "settings")
    more = "".join(f", {key} {value}" for key, value in stamp.items() if key not in shown and value not in ("", None))
    when = stamp["date"] or f"begun {stamp['begun']}, not finished"
    code = f"commit {stamp['commit'] or 'unknown'}"
    if "commit_at_end" in stamp:
        code += f" (at its end {stamp['commit_at_end']})"
    return f"verdict {stamp['number']}, {when}, {code}, settings {stamp['settings']}{more}"
