"""Reads a run folder for the report. Only ``run.json`` is required. The page lists any other missing files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tellapart.errors import UsageError
from tellapart.metrics.metric_info import Candidates, MetricInfo
from tellapart.metrics.results import Results
from tellapart.report.training_log import TrainingLog, read_log
from tellapart.utils.strict_json import parse_json


class _Lenient(BaseModel):
    """Base model that ignores unknown keys, so that newer files can be read, and accepts numbers as strings."""

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
    """A caption's claims.

    correct: number of true claims.
    of: number of all claims.
    false: (start, end, why) for the false words.
    unverified: whether the words in ``false`` are not known to be false, but were not found in the sources with which
    they were compared.
    """

    correct: int
    of: int
    false: list[tuple[int, int, str]] = []
    unverified: bool = False


class SetAnswer(_Lenient):
    """A system's caption for a set's target, and the candidate that the scorer retrieved with the caption.

    words: (start, end, worth in nats, belief from 0 to 1) for each content word. See
    `tellapart.evaluation.word_values`.
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
    """The content of ``gallery.json``. ``pictures`` maps picture ids to files in the run folder."""

    sets: list[LookalikeSet] = []
    pictures: dict[str, str] = {}


Describe = Callable[[str, Candidates | None], MetricInfo]  # describes the metric that a key in the results stands for


def unexplained(key: str, candidates: Candidates | None) -> MetricInfo:
    """Uses the key itself as the label of a metric that has no description."""
    return MetricInfo(key.replace("_", " "), "no description available")


@dataclass
class RunFolder:
    """The content of a run folder.

    gaps: one line for each part that the page cannot show.
    evaluation: whether this is an evaluation of caption files instead of a run. If so, the folder contains only the
    gallery's pictures.
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
    """Reads the run folder ``path``. If it is not a run folder, raises a `UsageError` that says what is missing.

    ``describe``: describes validation keys, and metrics that the results do not describe. This is usually
    `evaluation.metric_of_key.describe`, which uses the registry.
    """
    info = _read_info(path)
    run = RunFolder(path, info, TrainingLog())
    run.recipe = _read(run, "recipe.toml", _text, "the recipe")
    run.results = _read(
        run, "results.json", lambda file: Results.from_json(_parse(file)), "the metrics before and after"
    )
    run.gallery = _read(
        run, "gallery.json", lambda file: Gallery.model_validate(_parse(file)), "the look-alike pictures"
    )
    run.log = read_log(path / "log.jsonl", run.gaps)
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


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8-sig", errors="replace")


def _parse(file: Path) -> Any:
    return parse_json(file.read_text(encoding="utf-8-sig"))


def _short(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'top level'}: {first['msg']}"
    return str(error).splitlines()[0]


T = TypeVar("T")


def _read(run: RunFolder, name: str, read: Callable[[Path], T], what: str) -> T | None:
    file = run.path / name
    if not file.is_file():
        run.gaps.append(f"{name} is not in the run folder, so {what} cannot be shown.")
        return None
    try:
        return read(file)
    except (ValueError, OSError) as error:
        run.gaps.append(f"{name} cannot be read ({_short(error)}), so {what} cannot be shown.")
        return None
