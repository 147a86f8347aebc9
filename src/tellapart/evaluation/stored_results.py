"""Reads results that a run stored as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tellapart.errors import UsageError
from tellapart.metrics.results import Results
from tellapart.utils.strict_json import parse_json


def read_results(folder: Path) -> tuple[dict[str, Any], Results]:
    """Reads ``results.json`` from a run's folder, and returns it as raw JSON and as `Results`. If the run was not
    evaluated, both are empty.

    Raises `UsageError` if the file is damaged.
    """
    path = folder / "results.json"
    value: dict[str, Any] = {"systems": {}, "pairs": [], "signatures": {}}
    try:
        if path.is_file():
            found = parse_json(path.read_text(encoding="utf-8"))
            if missing := [key for key in value if key not in found]:
                raise ValueError(f"'{missing[0]}' is missing")
            value = found
        results = Results.from_json(value)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"{path} is damaged ({type(error).__name__}: {error}); remove it and repeat the command (for train, with "
            "--resume) to evaluate again"
        ) from error
    return value, results
