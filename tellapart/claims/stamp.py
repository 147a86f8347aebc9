"""A verdict is given once for the same settings, and every later one carries its number for ever.

All verdicts of a question lie in one file. An entry is written when a verdict begins, so that one that was stopped is
on record as well; the same settings then finish it.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tellapart.errors import TellapartError
from tellapart.utils.files import replace_text, write_errors
from tellapart.utils.messages import say

PACKAGE = Path(__file__).parents[1]


def read_verdicts(path: Path) -> list[dict[str, Any]]:
    """All verdicts that were begun, the first one first. Raises `TellapartError` where the file is damaged."""
    if not path.is_file():
        return []
    try:
        return [dict(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    except (ValueError, TypeError) as error:
        raise TellapartError(f"{path}: not a list of verdicts ({error}); restore it from the repository") from None


def given_verdict(path: Path, settings: str) -> dict[str, Any] | None:
    """The finished verdict of these settings."""
    return next((one for one in read_verdicts(path) if _is_of(one, settings) and one["stamp"]["date"]), None)


def give_verdict(path: Path, settings: str, run: Callable[[], Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """``{**run(), "stamp": {number, begun, date, commit, settings, **more}}``, kept in ``path``.

    settings: the fingerprint of all settings. Where a verdict of the same settings was given, nothing runs and that one
    is returned. Raises what ``run`` raises; the entry then stays as begun.
    """
    if earlier := given_verdict(path, settings):
        say(f"this verdict was given on {earlier['stamp']['date']}; it is not given again for the same settings")
        return earlier
    given = read_verdicts(path)
    entry = next((one for one in given if _is_of(one, settings)), None)
    if entry is None:
        stamp = {"number": len(given) + 1, "begun": now(), "date": "", "commit": commit(), "settings": settings, **more}
        entry = {"stamp": stamp}
        given.append(entry)
        _write(path, given)
    else:
        say(f"verdict {entry['stamp']['number']} was begun on {entry['stamp']['begun']} and is finished now")
    found = run()
    entry |= {**found, "stamp": {**entry["stamp"], "date": now()}}
    if (last := commit()) != entry["stamp"]["commit"]:
        entry["stamp"]["commit_at_end"] = last
    _write(path, given)
    return entry


def _is_of(entry: Mapping[str, Any], settings: str) -> bool:
    return bool(entry["stamp"]["settings"] == settings)


def _write(path: Path, given: list[dict[str, Any]]) -> None:
    with write_errors(path, "the verdict cannot be kept; make the folder writable"):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(given, indent=1, ensure_ascii=False) + "\n")


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M")


def commit() -> str:
    """The commit of the code that runs, with "-dirty" where its files were changed since; empty outside a clone."""
    found = _git("rev-parse", "--short", "HEAD")
    records = ":(exclude)claims/records"
    return found + ("-dirty" if found and _git("status", "--porcelain", "--", ".", records) else "")


def _git(*arguments: str) -> str:
    try:
        found = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=False)
    except OSError:  # no git here
        return ""
    return found.stdout.strip()


def stamp_line(stamp: Mapping[str, Any]) -> str:
    """ "verdict 1, 2026-11-23 04:12, commit 1a2b3c4, settings 0f1e2d3c"."""
    shown = ("number", "begun", "date", "commit", "commit_at_end", "settings")
    more = "".join(f", {key} {value}" for key, value in stamp.items() if key not in shown and value not in ("", None))
    when = stamp["date"] or f"begun {stamp['begun']}, not finished"
    code = f"commit {stamp['commit'] or 'unknown'}"
    if "commit_at_end" in stamp:
        code += f" (at its end {stamp['commit_at_end']})"
    return f"verdict {stamp['number']}, {when}, {code}, settings {stamp['settings']}{more}"
