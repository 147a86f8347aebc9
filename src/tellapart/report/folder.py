"""Read a run folder for the report. Only ``run.json`` must be there; all else may be absent, and is then named."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tellapart.errors import UsageError
from tellapart.metrics.results import Candidates, MetricInfo, Results
from tellapart.utils.messages import parse_json


class _Lenient(BaseModel):
    """Ignores unknown keys, so that newer files stay readable; takes 7 where "7" is expected."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)


class RunInfo(_Lenient):
    """``run.json``: name, time, command, seed and versions of a run."""

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
    """Counts how many of a caption's claims are true, and the (start, end, why) of the words that are not.

    ``unverified``: these words are not known to be false; what they were compared with does not have them.
    """

    correct: int
    of: int
    false: list[tuple[int, int, str]] = []
    unverified: bool = False


class SetAnswer(_Lenient):
    """A system's caption of a set's target, and the candidate that the scorer picked.

    words: (start, end, worth in nats, belief 0 to 1) of content words, see `tellapart.evaluation.word_values`.
    """

    caption: str = ""
    claims: StoredClaims | None = None
    words: list[tuple[int, int, float, float]] = []
    scores: dict[str, float | None] = {}
    picked: str | None = None


class LookalikeSet(_Lenient):
    """Pictures that look alike: the candidates with the target among them, and each system's answer."""

    target: str
    candidates: list[str] = []
    references: list[str] = []
    systems: dict[str, SetAnswer] = {}


class Gallery(_Lenient):
    """``gallery.json``; ``pictures`` maps an id to its file inside the run folder."""

    sets: list[LookalikeSet] = []
    pictures: dict[str, str] = {}


Series = dict[int, float]


@dataclass
class TrainingLog:
    """The numbers of ``log.jsonl``: a value by step for each key. A later line of the same step wins (resumed runs)."""

    training: dict[str, Series] = field(default_factory=dict)
    validation: dict[str, Series] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)  # of the keys of validation
    best_step: int | None = None
    validated: int | None = None  # pictures of a validation
    unreadable: int = 0
    not_finite: int = 0


Describe = Callable[[str, Candidates | None], MetricInfo]  # the label of a key of results


def unexplained(key: str, candidates: Candidates | None) -> MetricInfo:
    """A key as its own label, where nobody knows the metrics."""
    return MetricInfo(key.replace("_", " "), "no explanation is on file for this one")


@dataclass
class RunFolder:
    """The content of a run folder. ``gaps`` has one line for each part that the page cannot show.

    ``evaluation``: an evaluation of caption files instead of a run; its folder has only the gallery's pictures.
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
        """The run's name, or its folder's."""
        return self.info.name or self.path.resolve().name


def read_run(path: Path, describe: Describe = unexplained) -> RunFolder:
    """Read the run folder ``path``. Raises `UsageError` where it is none, naming what is missing.

    ``describe``: what is said of metrics whose results say nothing and of validation's keys:
    `evaluation.selection.describe`, which knows the registry.
    """
    info = _read_info(path)
    run = RunFolder(path, info, TrainingLog())
    run.recipe = _read_text(run, "recipe.toml", "the recipe")
    run.results = _read(run, "results.json", Results.from_json, "the numbers before and after")
    run.gallery = _read(run, "gallery.json", Gallery.model_validate, "the look-alike pictures")
    _read_log(run)
    run.log.labels = {key: describe(key, None).label for key in run.log.validation}
    if run.results is not None:
        _complete(run.results, describe)
    return run


def _complete(found: Results, describe: Describe) -> None:
    """Adds what the registry says of metrics, where the results do not say it."""
    for key in {key for system in found.systems.values() for key in system} - set(found.metrics):
        found.metrics[key] = describe(key, found.candidates.get(key))


def _read_info(path: Path) -> RunInfo:
    expected = "expected a run folder, which holds run.json; type: tellapart report RUN"
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
        run.gaps.append(f"log.jsonl: {run.log.unreadable} unreadable line(s) left out.")
    if run.log.not_finite:
        run.gaps.append(f"log.jsonl: {run.log.not_finite} value(s) that are not finite numbers left out of the curves.")


def _lines(file: Path, log: TrainingLog) -> Iterator[dict[str, Any]]:
    """The log's objects. A half-written last line, which a killed run leaves, does not count as unreadable."""
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
