"""The run folder: writes its stamp, log and atomic checkpoints, and finds the checkpoint to resume from.

    recipe.toml   the resolved recipe
    run.json      times, versions and content; has a key "finished" once the run is finished
    log.jsonl     one record per line
    checkpoints/  step-N (to resume from) and best-N (the best model in validation)
    model/        the best model

After evaluation, it also contains captions/, results.json, gallery.json and report.html.
"""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import torch
import transformers

from tellapart import __version__
from tellapart.errors import TellapartError, UsageError
from tellapart.models import ranks
from tellapart.recipe.reading import to_toml
from tellapart.recipe.schema import Recipe
from tellapart.training.fingerprint import RunContent, content_of
from tellapart.training.run_files import write_folder, write_json, write_text, writing
from tellapart.utils.atomic_writes import temporary_beside
from tellapart.utils.checkout import git_state
from tellapart.utils.checksums import check_sums, write_sums
from tellapart.utils.listed_names import few
from tellapart.utils.locks import locked
from tellapart.utils.messages import say
from tellapart.utils.strict_json import parse_json
from tellapart.utils.typed_command import typed_command

# Files that a run writes, in the order in which `Run.clear` removes them.
RESULT = ("model", "report.html", "results.json", "gallery.json", "gallery", "captions")
BEGUN = ("checkpoints", "log.jsonl", "recipe.toml", "run.json")
CHECKPOINTS = ("step-", "best-")
LENGTH = ("training.steps", "training.warmup", "training.checkpoint_every", "validation.every")  # derived from steps


@dataclass
class Checkpoint:
    """The state to resume from: the next step, the best step so far, the objective's state, and the folder."""

    step: int
    best_value: float | None
    best_step: int | None
    objective: dict[str, Any]
    folder: Path


Arguments = ParamSpec("Arguments")


def by_main_rank(write: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Wraps a method so that only the main rank runs it and only one process writes."""

    @wraps(write)
    def on_one(*positional: Arguments.args, **named: Arguments.kwargs) -> None:
        if ranks.is_main():
            write(*positional, **named)

    return on_one


class Run:
    """The folder of one training run. All ranks read it, but only the main rank writes to it.

    ``content``: everything that determines the run's result, if the caller has already computed it.
    """

    def __init__(self, folder: Path, recipe: Recipe, content: RunContent | None = None) -> None:
        self.folder, self.recipe, self._content = folder, recipe, content
        self.checkpoints = folder / "checkpoints"
        self._kept: set[str] = set()  # folders of the newest complete checkpoint
        self._damaged: set[Path] = set()  # checkpoints already reported as damaged

    @property
    def content(self) -> RunContent:
        """Everything that the recipe's result depends on, in its current state."""
        if self._content is None:
            self._content = content_of(self.recipe)
        return self._content

    def difference(self, *, but_length: bool = False) -> str:
        """Describes briefly how the run in this folder differs from this recipe. Returns "" if they agree.

        ``but_length``: whether to ignore the difference if the recipe trains for more steps.
        """
        if "content" not in (recorded := self.info):
            return "its run.json does not record its training data"
        longer = but_length and self.recipe.training.steps > self.steps
        return self.content.differences(recorded["content"], LENGTH if longer else ())

    @property
    def info(self) -> dict[str, Any]:
        path = self.folder / "run.json"
        try:
            return read_table(path) if path.is_file() else {}
        except (OSError, ValueError) as error:
            raise UsageError(
                f"cannot read {path} ({error}); repair this file, or set another folder with --out"
            ) from error

    @property
    def steps(self) -> int:
        """The run's total number of steps, including those that have not been performed yet."""
        return int(self.info["content"]["recipe"]["training"]["steps"])

    @property
    def finished(self) -> bool:
        return bool(self.info.get("finished"))

    @property
    def trained(self) -> bool:
        return (self.folder / "model" / "config.json").is_file()

    @property
    def evaluated(self) -> bool:
        """True if results and gallery exist, or if the recipe has no test data."""
        expected = [] if self.recipe.data.test is None else ["results.json"]
        if expected and self.recipe.evaluation.gallery and self.recipe.scorer is not None:
            expected.append("gallery.json")
        return all((self.folder / name).is_file() for name in expected)

    @property
    def reported(self) -> bool:
        """True if the run has been trained and evaluated, and its report exists."""
        return self.trained and self.evaluated and self.finished and (self.folder / "report.html").is_file()

    @property
    def started(self) -> bool:
        """True if the run has a checkpoint, a model or results.

        A run that failed before its first checkpoint has only a stamp, which can be replaced.
        """
        done = self.trained or (self.folder / "results.json").is_file() or self.last() is not None
        return (self.folder / "run.json").is_file() and done

    @contextmanager
    def lock(self, *, wait: bool = False) -> Iterator[None]:
        """Locks the folder for this process.

        Raises `UsageError` if the folder contains other files, or if another process holds the lock and ``wait`` is
        False.
        """
        with ExitStack() as stack:
            if ranks.is_main():
                if not self.started:
                    self._keep_off_others()
                with writing(self.folder):
                    stack.enter_context(locked(self.folder, wait=wait))
            yield

    @by_main_rank
    def stamp(self, device: str) -> None:
        """Writes recipe.toml and run.json before training. Raises `UsageError` if the folder contains other files."""
        self._keep_off_others()
        info = {
            "name": self.recipe.name,
            "created": now(),
            "command": typed_command(),
            "seed": self.recipe.seed,
            "fingerprint": self.content.fingerprint,
            "content": self.content.document,
            "commit": git_state(40) or None,
            "device": device,
            "threads": torch.get_num_threads(),
            "versions": {
                "tellapart": __version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
        }
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / "run.json", info)  # written first, because it marks the other files as a run's
        write_text(self.folder / "recipe.toml", to_toml(self.recipe))
        with writing(self.folder):
            self.checkpoints.mkdir(exist_ok=True)

    def _others(self, ours: Collection[str]) -> str:
        """Names a few files in the folder that are not in ``ours``. Returns "" if there are no such files.

        If the folder is not a run, names a few of all of its files.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise UsageError(f"{self.folder} is a file; expected a new folder; set --out DIR")
        ours = ours if "fingerprint" in self.info else ()
        names = sorted(path.name for path in self.folder.glob("*"))
        return few(name for name in names if name not in ours and not name.startswith("."))

    def _keep_off_others(self) -> None:
        if some := self._others(BEGUN):  # runs that ended before their first step leave `BEGUN` files behind
            raise UsageError(f"{self.folder} is not a run but contains {some}; set --out to a new folder")

    def check_clear(self) -> None:
        """Raises `UsageError` if the folder contains files that `clear` would not remove."""
        some = self._others((*RESULT, *BEGUN, self.recipe.name))  # trackers write to a folder of this name
        kept = [path for path in self.checkpoints.glob("*") if not path.name.lstrip(".").startswith(CHECKPOINTS)]
        if some := some or (f"checkpoints/{kept[0].name}" if kept else ""):
            raise UsageError(
                f"{self.folder} also contains {some}; --overwrite removes only the files of a run, so move all other "
                "files out of the folder first"
            )

    @by_main_rank
    def clear(self) -> None:
        """Removes the run in this folder. Calls `check_clear` first."""
        self.check_clear()
        self._remove((*RESULT, self.recipe.name, *BEGUN))

    @by_main_rank
    def extend(self) -> None:
        """Extends the run to the larger number of steps in the recipe, and removes the run's results."""
        extension = {"at": now(), "from": self.steps, "to": self.recipe.training.steps}
        self._remove(RESULT)
        write_text(self.folder / "recipe.toml", to_toml(self.recipe))
        info = {key: value for key, value in self.info.items() if key not in ("finished", "memory")}
        info |= {"fingerprint": self.content.fingerprint, "content": self.content.document}
        write_json(self.folder / "run.json", {**info, "extended": [*info.get("extended", []), extension]})

    def _remove(self, names: Sequence[str]) -> None:
        with writing(self.folder):
            for path in (self.folder / name for name in names):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)

    @by_main_rank
    def note(self, **more: Any) -> None:
        """Adds keys to ``run.json``."""
        write_json(self.folder / "run.json", {**self.info, **more})

    # The log has one record per line. If the process is killed, the log can be ahead of the last checkpoint; it is
    # truncated when the run resumes.
    @property
    def log_path(self) -> Path:
        return self.folder / "log.jsonl"

    @by_main_rank
    def log(self, **record: Any) -> None:
        with writing(self.log_path), self.log_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    @by_main_rank
    def cut_log(self, step: int) -> None:
        """Removes the records of steps after ``step``, which will be repeated, and any incomplete last line."""
        if not self.log_path.is_file():
            return
        kept, damaged = [], 0
        for line in self.log_path.read_bytes().splitlines(keepends=True):
            try:
                text = line.decode().rstrip("\n")
                if parse_json(text).get("step", 0) <= step:
                    kept.append(text + "\n")
            except (ValueError, AttributeError, TypeError):
                damaged += line.endswith(b"\n")
        if damaged:
            say(f"{self.log_path}: ignored {damaged} damaged lines")
        write_text(self.log_path, "".join(kept))

    @by_main_rank
    def save(self, checkpoint_state: dict[str, Any], fill: Callable[[Path], None]) -> None:
        """Writes a checkpoint for ``checkpoint_state['step']`` atomically. Keeps only the two newest checkpoints."""
        step = checkpoint_state["step"]

        def everything(folder: Path) -> None:
            fill(folder)
            (folder / "state.json").write_text(json.dumps(checkpoint_state))
            write_sums(folder)

        write_folder(self.checkpoints / f"step-{step:07d}", everything)
        before, self._kept = self._kept, {f"step-{step:07d}", self._best_name(checkpoint_state["best_step"])}
        self._drop(before | self._kept)

    @by_main_rank
    def save_best(self, step: int, fill: Callable[[Path], None]) -> None:
        write_folder(self.best_folder(step), fill)

    def best_folder(self, step: int) -> Path:
        return self.checkpoints / self._best_name(step)

    def last(self) -> Checkpoint | None:
        """Returns the newest intact checkpoint, or None if there are no checkpoints.

        Reports and skips damaged checkpoints. Raises `TellapartError` if all checkpoints are damaged.
        """
        folders = sorted((file.parent for file in self.checkpoints.glob("step-*/state.json")), reverse=True)
        for folder in folders:
            try:
                check_sums(folder, "this run cannot be resumed; start again with another --out", all_files=True)
                checkpoint = Checkpoint(**json.loads((folder / "state.json").read_text()), folder=folder)
            except TellapartError as error:
                if folder == folders[-1]:
                    raise
                if ranks.is_main() and folder not in self._damaged:
                    self._damaged.add(folder)
                    cause = str(error).partition(";")[0]
                    say(f"{cause}; continuing from the previous checkpoint, {folders[folders.index(folder) + 1].name}")
                continue
            self._kept = {folder.name, self._best_name(checkpoint.best_step)}
            return checkpoint
        return None

    @by_main_rank
    def publish(self, source: Path) -> None:
        """Writes ``model/``, a copy of the best model, and removes incomplete files that killed processes left."""
        self._drop({folder.name for folder in self.checkpoints.iterdir() if not folder.name.startswith(".")})
        write_folder(self.folder / "model", lambda to: shutil.copytree(source, to, dirs_exist_ok=True))

    def _drop(self, keep: set[str]) -> None:
        for folder in self.checkpoints.iterdir():
            if folder.name not in keep and folder.name.lstrip(".").startswith(CHECKPOINTS):
                half = temporary_beside(folder)  # so that an incomplete checkpoint never has this name
                with contextlib.suppress(OSError):
                    folder.replace(half)
                shutil.rmtree(half, ignore_errors=True)

    @staticmethod
    def _best_name(step: int | None) -> str:
        return f"best-{step or 0:07d}"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_table(path: Path) -> dict[str, Any]:
    """Reads a JSON object from a file.

    Raises ValueError if the file does not contain a JSON object, and OSError if it cannot be read.
    """
    table = parse_json(path.read_text(encoding="utf-8"))
    if not isinstance(table, dict):
        raise ValueError(f"expected a JSON object, got a {type(table).__name__}")
    return table
