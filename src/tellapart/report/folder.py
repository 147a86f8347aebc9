"""Reads a run folder for the report. Only ``run.json`` is required. The page lists any other missing files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from tellapart.errors import UsageError, first_line
from tellapart.metrics.results import Results
from tellapart.report.gallery import Gallery
from tellapart.report.lenient_model import LenientModel
from tellapart.report.training_log import TrainingLog, read_log
from tellapart.utils.strict_json import parse_json

EXPECTED = "expected a run folder, which contains run.json; use tellapart report RUN"
T = TypeVar("T")


class RunInfo(LenientModel):
    """The content of ``run.json``: a run's name, time, command, seed and versions."""

    name: str = ""
    created: str = ""
    finished: str | None = None
    seconds: float | None = None
    command: str | list[str] = ""
    seed: int | str | None = None
    versions: dict[str, str | None] = Field(default_factory=dict)
    device: str | None = None
    threads: int | None = None
    commit: str | None = None
    kept_step: int | None = None


@dataclass
class RunFolder:
    """The content of a run folder.

    gaps: one line for each part that the page cannot show.
    evaluation: whether this is an evaluation of caption files instead of a run. If so, the folder contains only the
    gallery's pictures.
    """

    path: Path
    info: RunInfo
    log: TrainingLog = field(default_factory=TrainingLog)
    recipe: str | None = None
    results: Results | None = None
    gallery: Gallery | None = None
    gaps: list[str] = field(default_factory=list)
    evaluation: bool = False

    @property
    def name(self) -> str:
        """Returns the run's name, or the name of its folder."""
        return self.info.name or self.path.resolve().name

    def read(self, name: str, what: str, parse: Callable[[str], T]) -> T | None:
        """Reads a file of the folder. If this fails, adds a line to `gaps` and returns None."""
        try:
            return parse((self.path / name).read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            self.gaps.append(f"{name} is not in the run folder, so {what} cannot be shown.")
        except (ValueError, OSError) as error:
            self.gaps.append(f"{name} cannot be read ({_short(error)}), so {what} cannot be shown.")
        return None


def read_run(path: Path) -> RunFolder:
    """Reads the run folder ``path``. If it is not a run folder, raises a `UsageError` that says what is missing."""
    file = path / "run.json"
    if not path.exists():
        raise UsageError(f"{path} does not exist; {EXPECTED}")
    if not path.is_dir():
        raise UsageError(f"{path} is a file; {EXPECTED}")
    if not file.is_file():
        raise UsageError(f"{path} is not a run folder: run.json is missing; {EXPECTED}")
    try:
        run = RunFolder(path, RunInfo.model_validate(parse_json(file.read_text(encoding="utf-8-sig"))))
    except (ValueError, OSError) as error:
        raise UsageError(f"{file} cannot be read ({_short(error)}); {EXPECTED}") from error
    run.recipe = run.read("recipe.toml", "the recipe", str)
    run.results = run.read(
        "results.json", "the metrics before and after", lambda text: Results.from_json(parse_json(text))
    )
    run.gallery = run.read(
        "gallery.json", "the look-alike pictures", lambda text: Gallery.model_validate(parse_json(text))
    )
    run.log = read_log(path / "log.jsonl", run.gaps)
    return run


def _short(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return first_line(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'top level'}: {first['msg']}"
