"""Results that were printed as JSON, read again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tellapart.errors import UsageError
from tellapart.evaluation.selection import base_of, metric_of_key
from tellapart.metrics.results import Candidates, MetricInfo, Pair, Results
from tellapart.metrics.significance import Difference, Interval
from tellapart.metrics.words import Association
from tellapart.utils.text import parse_json


def read_results(folder: Path) -> tuple[dict[str, Any], Results]:
    """``results.json`` of a run's folder, as it is and as results; without any where it was not measured.

    Raises `UsageError` where it is damaged.
    """
    path = folder / "results.json"
    value: dict[str, Any] = {"systems": {}, "pairs": [], "signatures": {}}
    try:
        value = parse_json(path.read_text(encoding="utf-8")) if path.is_file() else value
        return value, results_from_json(value)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} is damaged ({type(error).__name__}: {error}); remove it, and type the same command again (train: "
            "with --resume): it is measured anew"
        ) from error


def results_from_json(value: Mapping[str, Any]) -> Results:
    """Results as they are printed, from their fixed JSON; what each picture contributed is not in it."""

    def interval(found: Mapping[str, Any]) -> Interval:
        numbers: dict[str, Any] = {key: math.nan if number is None else number for key, number in found.items()}
        return Interval(**numbers)

    def pair(found: Mapping[str, Any]) -> Pair:
        inner: dict[str, Any] = {
            key: math.nan if found[key] is None else found[key] for key in ("low", "high", "n", "p")
        }
        difference = math.nan if found["difference"] is None else found["difference"]
        return Pair(found["a"], found["b"], found["metric"], Difference(value=difference, **inner))

    systems = {
        name: {metric: interval(found) for metric, found in metrics.items()}
        for name, metrics in value["systems"].items()
    }
    count = max((found.n for metrics in systems.values() for found in metrics.values()), default=0)
    metrics = {key: MetricInfo(**info) for key, info in value.get("metrics", {}).items()}
    formats = {key: metric.digits for key in value["signatures"] if (metric := metric_of_key(base_of(key))) is not None}
    pairs = [pair(found) for found in value["pairs"]]
    signatures, notes = dict(value["signatures"]), list(value.get("notes", []))
    words = {name: [Association(**word) for word in found] for name, found in value.get("words", {}).items()}
    candidates = {key: Candidates(**found) for key, found in value.get("candidates", {}).items()}
    pictures = value.get("pictures", {"n": count, "ids": ""})
    return Results(
        [str(i) for i in range(pictures["n"])],
        systems,
        pairs,
        signatures,
        notes,
        formats=formats,
        candidates=candidates,
        metrics=metrics,
        words=words,
        ids_digest=pictures["ids"],
    )
