"""Reads the value at which training stops (``validation.until``)."""

from __future__ import annotations

from pathlib import Path

from tellapart.data.text_files import usage_errors
from tellapart.errors import UsageError
from tellapart.report.training_log import logged_validations


def goal_of(until: float | str | None, select: str) -> float | None:
    """Returns the value of the metric ``select`` at which training stops.

    If ``until`` is the folder of a run, this is the best finite value that the run's validations logged. Raises
    `UsageError` if ``until`` is not a run, or if the run never logged ``select``.
    """
    if not isinstance(until, str):
        return until
    file = Path(until) / "log.jsonl"
    if not file.is_file():
        raise UsageError(f"validation.until must be a number or the folder of a run ({file}: no such file)")
    with usage_errors(file):
        validations = logged_validations(Path(until))
    if select == "step":
        values = {float(step) for series in validations.values() for step in series}
    else:
        values = set(validations.get(select, {}).values())
    if not values:
        raise UsageError(f"validation.until: {until} contains no validation of {select}; train that run first")
    return min(values) if select == "loss" else max(values)
