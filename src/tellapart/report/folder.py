"""Reads a run folder for the report. Only ``run.json`` is required; the page lists other files that are missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tellapart.errors import UsageError
from tellapart.metrics.metric_info import Candidates, MetricInfo
from tellapart.metrics.results import Results
from tellapart.utils.strict_json import parse_json


class _Lenient(BaseModel):
    """Base model that ignores unknown keys, so that newer files can be read, and accepts numbers for strings."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)


class RunInfo(_Lenient):
    """The content of ``run.json``: a run's name, time, command, seed and versions."""

    name: str = ""
    created: str = ""
    finished: str | None = None
    seconds: float | None = None
    command: str | list[str] = ""
    seed: int | str | None = None
    versions: dict[str, str | None] = {}
    device: str | None = None
    threads: int | None = None
    commit: str | None = None
    kept_step: int | None = None


class StoredClaims(_Lenient):
    """The number of claims in a caption that are true, and (start, end, why) for the false words.

    ``unverified``: the words are not known to be false, but the sources that they were compared with lack them.
    """

    correct: int
    of: int
    false: list[tuple[int, int, str]] = []
    unverified: bool = False


class SetAnswer(_Lenient):
    """A system's caption for a set's target, and the candidate that the scorer retrieved.

    words: (start, end, worth in nats, belief from 0 to 1) for content words (see `tellapart.evaluation.word_values`).
    """

    caption: str = ""
    claims: StoredClaims | None = None
    words: list[tuple[int, int, float, float]] = []
    scores: dict[str, float | None] = {}
    picked: str | None = None


class LookalikeSet(_Lenient):
    """A set of look-alikes: the candidates, including the target, and each system's answer."""

    target: str
    candidates: list[str] = []
    references: list[str] = []
    systems: dict[str, SetAnswer] = {}


class Gallery(_Lenient):
    """The content of ``gallery.json``. ``pictures`` maps ids to files in the run folder."""

    sets: list[LookalikeSet] = []
    pictures: dict[str, str] = {}


Series = dict[int, float]


@dataclass
class TrainingLog:
    """Values in ``log.jsonl`` by key and step. Later lines replace earlier lines for the same step (resumed runs)."""

    training: dict[str, Series] = field(default_factory=dict)
    validation: dict[str, Series] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)  # labels of the validation keys
    best_step: int | None = None
    validated: int | None = None  # number of validation pictures
    unreadable: int = 0
    not_finite: int = 0


Describe = Callable[[str, Candidates | None], MetricInfo]  # describes a key of results


def unexplained(key: str, candidates: Candidates | None) -> MetricInfo:
    """Returns the key as its own label, for metrics without a description."""
    return MetricInfo(key.replace("_", " "), "no description available")


@dataclass
class RunFolder:
    """The content of a run folder. ``gaps`` has one line for each part that the page cannot show.

    ``evaluation``: whether this is an evaluation of caption files rather than a run. If so, the folder contains only
    the gallery's pictures.
    """

    path: Path
    info: RunInfo
    log: TrainingLog
    recipe: str | None = None
    results: Results | None = None
    gallery: Gallery | None = None
    gaps: list[str] = field(default_factory=list)
    evaluation: bool = False

    @property
    def name(self) -> str:
        """Returns the run's name, or the name of its folder."""
        return self.info.name or self.path.resolve().name


def read_run(path: Path, describe: Describe = unexplained) -> RunFolder:
    """Reads the run folder ``path``. Raises a `UsageError` that says what is missing if it is not a run folder.

    ``describe``: describes validation keys, and metrics that the results do not describe. Usually
    `evaluation.metric_of_key.describe`, which uses the registry.
    """
    info = _read_info(path)
    run = RunFolder(path, info, TrainingLog())
    run.recipe = _read_text(run, "recipe.toml", "the recipe")
    run.results = _read(run, "results.json", Results.from_json, "the metrics before and after")
    run.gallery = _read(run, "gallery.json", Gallery.model_validate, "the look-alike pictures")
    _read_log(run)
    run.log.labels = {key: describe(key, None).label for key in run.log.validation}
    if run.results is not None:
        _complete(run.results, describe)
    return run


def _complete(found: Results, describe: Describe) -> None:
    """Adds the registry's descriptions of metrics that the results do not describe."""
    for key in {key for system in found.systems.values() for key in system} - set(found.metrics):
        found.metrics[key] = describe(key, found.candidates.get(key))


def _read_info(path: Path) -> RunInfo:
    expected = "expected a run folder, which contains run.json; use tellapart report RUN"
    if not path.exists():
        raise UsageError(f"{path} does not exist; {expected}")
    if not path.is_dir():
        raise UsageError(f"{path} is a file; {expected}")
    file = path / "run.json"
    if not file.is_file():
        raise UsageError(f"{path} is not a run folder: run.json is missing; {expected}")
    try:
        return RunInfo.model_validate(_parse(file))
    except (ValueError, OSError) as error:
        raise UsageError(f"{file} cannot be read ({_short(error)}); {expected}") from error


def _parse(file: Path) -> Any:
    return parse_json(file.read_text(encoding="utf-8-sig"))


def _short(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'top level'}: {first['msg']}"
    return str(error).splitlines()[0]


def _read_text(run: RunFolder, name: str, what: str) -> str | None:
    file = run.path / name
    if not file.is_file():
        run.gaps.append(f"{name} is not in the run folder, so {what} cannot be shown.")
        return None
    return file.read_text(encoding="utf-8-sig", errors="replace")


T = TypeVar("T")


def _read(run: RunFolder, name: str, model: Callable[[Any], T], what: str) -> T | None:
    file = run.path / name
    if not file.is_file():
        run.gaps.append(f"{name} is not in the run folder, so {what} cannot be shown.")
        return None
    try:
        return model(_parse(file))
    except (ValueError, OSError) as error:
        run.gaps.append(f"{name} cannot be read ({_short(error)}), so {what} cannot be shown.")
        return None


def _read_log(run: RunFolder) -> None:
    file = run.path / "log.jsonl"
    if not file.is_file():
        run.gaps.append("log.jsonl is not in the run folder, so the learning curves cannot be shown.")
        return
    for line in _lines(file, run.log):
        event, step = line.get("event"), line.get("step")
        if isinstance(step, bool) or not isinstance(step, int) or event not in (None, "training", "validation"):
            continue
        series = run.log.validation if event == "validation" else run.log.training
        for key, value in line.items():
            if key in ("step", "n") or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if math.isfinite(value):
                series.setdefault(key, {})[step] = float(value)
            else:
                run.log.not_finite += 1
        if event == "validation":
            run.log.best_step = step if line.get("best") is True else run.log.best_step
            run.log.validated = line["n"] if isinstance(line.get("n"), int) else run.log.validated
    if run.log.unreadable:
        run.gaps.append(f"log.jsonl: {run.log.unreadable} unreadable line(s) ignored.")
    if run.log.not_finite:
        run.gaps.append(f"log.jsonl: {run.log.not_finite} value(s) that are not finite are not drawn.")


def _lines(file: Path, log: TrainingLog) -> Iterator[dict[str, Any]]:
    """Yields the log's objects. A partial last line, which a killed run can leave, does not count as unreadable."""
    with file.open(encoding="utf-8", errors="replace") as stream:
        for raw in stream:
            if not raw.strip():
                continue
            try:
                line = parse_json(raw)
            except ValueError:
                log.unreadable += raw.endswith("\n")
                continue
            if isinstance(line, dict):
                yield line
