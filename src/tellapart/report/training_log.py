"""Reads a run's training log: the logged values by key and step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from tellapart.utils.strict_json import parse_json

Series = dict[int, float]


@dataclass
class TrainingLog:
    """Values in ``log.jsonl`` by key and step. For the same step, a resumed run's later lines replace earlier ones."""

    training: dict[str, Series] = field(default_factory=dict)
    validation: dict[str, Series] = field(default_factory=dict)
    best_step: int | None = None
    validated: int | None = None  # number of validation pictures


def read_log(file: Path, gaps: list[str]) -> TrainingLog:
    """Reads ``log.jsonl``. Adds a line to ``gaps`` for everything that cannot be shown. A partial last line, which a
    killed run can leave, is ignored.
    """
    log = TrainingLog()
    if not file.is_file():
        gaps.append("log.jsonl is not in the run folder, so the learning curves cannot be shown.")
        return log
    unreadable = not_finite = 0
    with file.open(encoding="utf-8", errors="replace") as stream:
        for raw in filter(str.strip, stream):
            try:
                line = parse_json(raw)
            except ValueError:
                unreadable += raw.endswith("\n")
                continue
            event, step = (line.get("event"), line.get("step")) if isinstance(line, dict) else (None, None)
            if isinstance(step, bool) or not isinstance(step, int) or event not in (None, "training", "validation"):
                continue
            series = log.validation if event == "validation" else log.training
            if event == "validation":
                log.best_step = step if line.get("best") is True else log.best_step
                log.validated = line["n"] if isinstance(line.get("n"), int) else log.validated
            for key, value in line.items():
                if key in ("step", "n") or isinstance(value, bool) or not isinstance(value, int | float):
                    continue
                if math.isfinite(value):
                    series.setdefault(key, {})[step] = float(value)
                else:
                    not_finite += 1
    if unreadable:
        gaps.append(f"log.jsonl: {unreadable} unreadable line(s) ignored.")
    if not_finite:
        gaps.append(f"log.jsonl: {not_finite} value(s) that are not finite are not drawn.")
    return log


def logged_validations(run: Path) -> dict[str, Series]:
    """Returns the finite values that a run's validations logged, by key and step, or {} if the run has no log."""
    return read_log(run / "log.jsonl", []).validation
