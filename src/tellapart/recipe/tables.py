"""The tables of the papers: which systems, on which test sets, by which metrics, and what the paper prints.

One TOML file per paper in ``shipped/tables``. `Plan.commands` turns a table into ``train``, ``caption`` and ``eval``
commands, which ``tellapart tables`` prints or runs; `Plan.figures` reads what they wrote. The same definitions name the
arms and measures that stand for a system and a column on `scenes`.
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError, model_validator

from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.metrics.spice_tool import find_tool
from tellapart.recipe.reading import PAPERS, explain, find_recipe, read_recipe, read_tables
from tellapart.recipe.schema import Recipe, TestSet
from tellapart.utils.options import Strict
from tellapart.utils.registry import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

CLIP = "openai/clip-vit-base-patch32"


class Column(Strict):
    """A column of figures: a metric on a test set; ``scenes``: the measure that stands for it on `scenes`.

    ``setting``: in place of a metric a key of the row's recipe, or several with ``*`` between them for their product.
    ``log``: in place of both what the row's validation logged under this name. With none of them the column cannot be
    measured here; ``note`` says why.
    """

    name: str
    test: str = ""
    metric: str = ""
    scenes: str = ""
    setting: str = ""
    log: str = ""
    note: str = ""


class Row(Strict):
    """A row: labels, the system, and the paper's figures (a figure, or "" where it prints none).

    instead: test sets that take the place of a column's for this row, such as other references. validation: which of
    the system's validations, from 0, stands in columns of its log.
    """

    labels: tuple[str, ...]
    system: str
    paper: tuple[float | Literal[""], ...]
    instead: dict[str, str] = Field(default_factory=dict)
    validation: int = 0


class System(Strict):
    """Names what writes a row's captions; exactly one of ``recipe``, ``run``, ``model``, ``human`` and ``file``.

    recipe: trained, with ``set`` as ``--set``; ``start``: the system whose model it starts from. run: the trained
    system whose model it is, with other ``caption`` options. model: a captioner's name. human: references as captions,
    as ``--human`` of ``eval``. file: a caption file that the user brings; the text says whose. caption: words of the
    ``caption`` command. parameters, tokens: size of the model, and tokens per picture and caption, for estimates.
    scenes: the arm that stands for it on `scenes`; stage: of which boosted captions are its references there.
    """

    recipe: str = ""
    set: tuple[str, ...] = ()
    start: str = ""
    run: str = ""
    model: str = ""
    human: Literal["", "first", "random", "mean"] = ""
    file: str = ""
    caption: tuple[str, ...] = ()
    parameters: float = 0.0
    tokens: int = 0
    scenes: str = ""
    stage: str = ""

    @model_validator(mode="after")
    def is_one_thing(self) -> System:
        if sum(map(bool, (self.recipe, self.run, self.model, self.human, self.file))) != 1:
            raise ValueError("a system is a recipe, a run, a model, human, or a file; give exactly one")
        return self


class PaperTable(Strict):
    """A printed table or figure. id: "5", "F3" for a figure, "S1" for a sweep that a text tells of. note: what differs
    from the paper's.
    """

    id: str
    title: str
    labels: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""

    @model_validator(mode="after")
    def is_rectangular(self) -> PaperTable:
        for row in self.rows:
            if (len(row.labels), len(row.paper)) != (len(self.labels), len(self.columns)):
                raise ValueError(f"table {self.id}, row {row.labels}: expected a label and a figure for each column")
        return self


class Paper(Strict):
    """All tables of a paper with the systems and test sets that they share."""

    number: int
    title: str
    systems: dict[str, System]
    tests: dict[str, TestSet]
    tables: tuple[PaperTable, ...]

    @model_validator(mode="after")
    def names_are_known(self) -> Paper:
        for table in self.tables:
            for row in table.rows:
                if row.system not in self.systems:
                    raise ValueError(f"table {table.id}: no system is called '{row.system}'")
            columns = [column.test for column in table.columns if column.metric]
            for test in (*columns, *(test for row in table.rows for test in row.instead.values())):
                if test not in self.tests:
                    raise ValueError(f"table {table.id}: no test set is called '{test}'")
        for name, system in self.systems.items():
            for other in filter(None, (system.start, system.run)):
                if other not in self.systems:
                    raise ValueError(f"system {name}: no system is called '{other}'")
        return self


@cache
def read_paper(number: int) -> Paper:
    """Reads the tables of paper 1, 2, 3 or 4."""
    try:
        return Paper.model_validate(read_tables(number))
    except ValidationError as error:
        raise UsageError(f"tables/paper{number}.toml: {explain(error, Paper)}") from None


def find_tables(names: Sequence[str]) -> list[tuple[Paper, PaperTable]]:
    """Returns the tables of ``2:5``, ``3:1-5``, ``1:F4`` or ``4`` (all of paper 4), in order; all without names.

    Raises `UsageError` for another form, an unknown paper or table.
    """
    found: dict[tuple[int, str], tuple[Paper, PaperTable]] = {}
    for name in names or list(map(str, PAPERS)):
        number, colon, ids = name.partition(":")
        if number not in map(str, PAPERS) or (colon and not ids):
            raise UsageError(f"'{name}' is no table of the papers; expected PAPER:TABLE, as in 2:5, 3:1-5, 1:F4, or 4:")
        paper = read_paper(int(number))
        known = {table.id: table for table in paper.tables}
        for id in _expand(ids, name) if colon else known:
            if id not in known:
                raise UsageError(
                    f"paper {number} has no table '{id}' here{nearest(id, known)}; known: {', '.join(known)}"
                )
            found[paper.number, id] = (paper, known[id])
    return list(found.values())


def _expand(ids: str, name: str) -> Iterator[str]:
    """Yields "1", "2", "5" of "1-2,5"."""
    for part in ids.upper().split(","):
        first, dash, last = part.partition("-")
        letter = first[:1] if first[:1] in ("F", "S") else ""
        start, stop = first.removeprefix(letter), (last or first).removeprefix(letter)
        if not (start.isdecimal() and stop.isdecimal()) or (dash and int(stop) < int(start)):
            raise UsageError(
                f"'{name}': cannot read '{part}'; expected a number, F and a number, or a range, as in 1-5"
            )
        yield from (f"{letter}{number}" for number in range(int(start), int(stop) + 1))


@dataclass(frozen=True)
class Step:
    """A command. words: after ``tellapart``. out: the file that says that it is done. system: whose; "" for eval."""

    words: tuple[str, ...]
    out: Path
    system: str = ""

    @property
    def done(self) -> bool:
        return self.out.exists()

    @property
    def uses_models(self) -> bool:
        """Returns whether the command takes ``--device``: ``eval`` without a model refuses it."""
        return bool(self.system) or "--scorer" in self.words or "--language-model" in self.words

    def make_folder(self) -> None:
        """Makes the folder of the file that is written; a run makes its own, which must not hold anything else."""
        if self.words[0] != "train":
            self.out.parent.mkdir(parents=True, exist_ok=True)

    def typed(self) -> str:
        """Returns the command as a person types it: ``$TELLAPART_DATA`` stays a variable."""
        return " ".join(("tellapart", *map(_quoted, self.words)))


def _quoted(word: str) -> str:
    plain = shlex.quote(word.replace("$TELLAPART_DATA", "_TELLAPART_DATA_"))
    if "$TELLAPART_DATA" not in word:
        return plain
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`").replace("$", "\\$")
    return '"' + escaped.replace("\\$TELLAPART_DATA", "$TELLAPART_DATA") + '"'


@dataclass(frozen=True)
class Plan:
    """Holds what makes a table: its rows, the commands in order, and what is missing.

    rows: those that are asked for. files: caption files that the user brings, by system. settings: ``--set`` of every
    ``train`` command, after the system's own. without: metrics that cannot be computed here, each with the reason.
    judge: as ``--llm-judge``, for the metrics `JUDGED`.
    """

    paper: Paper
    table: PaperTable
    rows: tuple[Row, ...]
    folder: Path
    files: Mapping[str, Path] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    without: Mapping[str, str] = field(default_factory=dict)
    judge: str = ""

    def missing(self) -> dict[str, str]:
        """Returns why the rows of these systems cannot be made, by system."""
        return {
            row.system: f"takes a caption file ({system.file}): --captions {row.system}=FILE"
            for row in self.rows
            if (system := self.paper.systems[row.system]).file and row.system not in self.files
        }

    def notes(self) -> list[str]:
        """Returns what the reader of the table has to know: its note, and why rows and columns are empty."""
        rows = [f"{system} {why}" for system, why in self.missing().items()]
        without = {column.name: self.without.get(column.metric, column.note) for column in self.table.columns}
        return [*filter(None, [self.table.note]), *rows, *(f"{name}: {why}" for name, why in without.items() if why)]

    def made(self) -> list[Row]:
        """Returns the rows that can be made."""
        absent = self.missing()
        return [row for row in self.rows if row.system not in absent]

    def cells(self) -> Iterator[tuple[Row, Column, str]]:
        """Yields row, column and test set of every figure that can be measured."""
        for row in self.made():
            for column in self.table.columns:
                if column.metric and column.metric not in self.without:
                    yield row, column, row.instead.get(column.test, column.test)

    def needed_files(self) -> dict[Path, str]:
        """Returns the files that are not there, each with where it comes from."""
        tests = dict.fromkeys(test for _, _, test in self.cells())
        return {path: why for test in tests for path, why in self.paper.tests[test].absent().items()}

    def commands(self) -> list[Step]:
        """Returns every command once, each after those whose results it reads."""
        steps: dict[Path, Step] = {}
        trained = any(column.metric or column.log for column in self.table.columns)
        for system in dict.fromkeys(row.system for row in self.made() if trained):
            for step in self._training(system):
                steps[step.out] = step
        tests: dict[str, list[str]] = {}
        for row, _, test in self.cells():
            if row.system not in tests.setdefault(test, []):
                tests[test].append(row.system)
        for test, systems in tests.items():
            for system in systems:
                if (caption := self._caption(system, test)) is not None:
                    steps[caption.out] = caption
            evaluated = self._eval(test, systems)
            steps[evaluated.out] = evaluated
        return list(steps.values())

    def run_of(self, system: str) -> Path:
        """Returns the folder into which a system is trained; systems of all tables of a paper share it."""
        return self.folder / "runs" / f"paper{self.paper.number}-{system}"

    def model_of(self, system: str) -> str:
        """Returns the captioner's name: the run of what is trained here, else the model."""
        own = self.paper.systems[system]
        return self.model_of(own.run) if own.run else str(self.run_of(system)) if own.recipe else own.model

    def _training(self, system: str) -> Iterator[Step]:
        own = self.paper.systems[system]
        if own.run:
            yield from self._training(own.run)
        if not own.recipe:
            return
        settings = list(own.set)
        if own.start:
            yield from self._training(own.start)
            settings.insert(0, f"captioner.name={self.model_of(own.start)}")
        words = ["train", own.recipe, "--out", str(self.run_of(system)), "--resume"]
        for setting in (*settings, *self.settings):
            words += ["--set", setting]
        step = Step(tuple(words), self.run_of(system) / "results.json", system)
        if recipe_of(step).data.test is None:  # as of instructions: such a run has no results
            step = replace(step, out=self.run_of(system) / "model" / "config.json")
        yield step

    def captions_of(self, system: str, test: str) -> Path:
        """Returns the file of a system's captions of a test set."""
        return (
            self.files.get(system) or self.folder / "captions" / f"paper{self.paper.number}-{test}" / f"{system}.jsonl"
        )

    def _caption(self, system: str, test: str) -> Step | None:
        own, on = self.paper.systems[system], self.paper.tests[test]
        if own.human or system in self.files:
            return None
        out = self.captions_of(system, test)
        length = () if on.max_tokens is None else ("--max-tokens", str(on.max_tokens))
        words = ("caption", self.model_of(system), on.captioned or on.data, "-o", str(out), *own.caption, *length)
        return Step(words, out, system)

    def result_of(self, test: str) -> Path:
        """Returns the file of the figures on a test set."""
        return self._eval(test, [row.system for row, _, on in self.cells() if on == test]).out

    def _eval(self, test: str, systems: Sequence[str]) -> Step:
        on = self.paper.tests[test]
        metrics = dict.fromkeys(column.metric for _, column, where in self.cells() if where == test)
        scorer = ["--scorer", CLIP] if on.has_pictures else []
        words = ["eval", "--data", on.data, *scorer, "--metrics", ",".join(metrics), *on.options()]
        if any(metric.startswith(JUDGED) for metric in metrics):
            words += ["--llm-judge", self.judge, "--ledger", str(self.folder / "judge.ledger.jsonl")]
        for system in dict.fromkeys(systems):
            own = self.paper.systems[system]
            words += ["--human", own.human] if own.human else ["--captions", str(self.captions_of(system, test))]
        digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:8]
        out = self.folder / "results" / f"paper{self.paper.number}-{test}-{digest}.json"
        return Step((*words, "-o", str(out)), out)

    def figures(self) -> dict[tuple[int, int], float]:
        """Returns our figures by row and column of the table, of those whose commands have run."""
        results: dict[str, Mapping[str, Any]] = {}
        found = {}
        places = {id(row): place for place, row in enumerate(self.table.rows)}
        for row in self.rows:
            for number, column in enumerate(self.table.columns):
                if column.setting:
                    *_, train = self._training(row.system)
                    found[places[id(row)], number] = product_of(recipe_of(train), column.setting)
                elif column.log:
                    logged = validations(self.run_of(row.system))
                    if row.validation < len(logged) and column.log in logged[row.validation]:
                        found[places[id(row)], number] = float(logged[row.validation][column.log])
        for row, column, test in self.cells():
            if test not in results:
                path = self.result_of(test)
                results[test] = json.loads(path.read_text(encoding="utf-8"))["systems"] if path.is_file() else {}
            own = self.paper.systems[row.system]
            name = "human" if own.human else self.captions_of(row.system, test).stem
            value = measured(results[test].get(name, {}), column.metric)
            if value is not None:
                found[places[id(row)], self.table.columns.index(column)] = float(value)
        return found


def make_plan(
    paper: Paper,
    table: PaperTable,
    folder: Path,
    rows: Sequence[str] = (),
    files: Mapping[str, Path] | None = None,
    settings: Sequence[str] = (),
    without: Mapping[str, str] | None = None,
    judge: str = "",
) -> Plan:
    """Returns the plan of a table's rows; all without ``rows``, which are systems or labels joined by spaces.

    Raises `UsageError` for a row that the table does not have.
    """
    known = {row.system: row for row in table.rows} | {" ".join(filter(None, row.labels)): row for row in table.rows}
    for name in rows:
        if name not in known:
            raise UsageError(
                f"table {paper.number}:{table.id} has no row '{name}'{nearest(name, known)}; known: "
                f"{', '.join(dict.fromkeys(row.system for row in table.rows))}"
            )
    chosen = [row for row in table.rows if not rows or any(known[name] == row for name in rows)]
    return Plan(paper, table, tuple(chosen), folder, dict(files or {}), tuple(settings), dict(without or {}), judge)


def measured(results: Mapping[str, Any], metric: str) -> float | None:
    """Returns a system's value of a metric; a judge's has the judge and the days after its name."""
    keys = [key for key in results if key == metric or (metric.startswith(JUDGED) and key.startswith(f"{metric}@"))]
    return results[keys[0]].get("value") if keys else None


JUDGED = "smile_"  # metrics that a judge behind a server measures


def absent_metrics(judge: str = "") -> dict[str, str]:
    """Returns the metrics of the tables that cannot be measured here, each with what to type."""
    found = {}
    if not judge:
        metrics = {
            column.metric for number in PAPERS for table in read_paper(number).tables for column in table.columns
        }
        found = {name: "a judge's: --llm-judge openai:MODEL@URL" for name in metrics if name.startswith(JUDGED)}
    try:
        find_tool()
    except TellapartError as error:
        found["spice"] = str(error)
    return found


def validations(run: Path) -> list[dict[str, Any]]:
    """Returns what the log of a run says of its validations, in order; empty where there is none yet."""
    path = run / "log.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [record for record in map(json.loads, lines) if record.get("event") == "validation"]


def product_of(recipe: Recipe, keys: str) -> float:
    """Returns the product of a recipe's numbers of these keys, such as ``training.batch_size*training.steps``."""
    return math.prod(float(attrgetter(key)(recipe)) for key in keys.split("*"))


@dataclass(frozen=True)
class StepEstimate:
    """An order of magnitude of what a command costs: operations, and bytes of memory and of disk at least."""

    flops: float
    memory: float
    disk: float

    def to_json(self) -> dict[str, float]:
        return {"flops": self.flops, "memory_bytes": self.memory, "disk_bytes": self.disk}

    def text(self, speed: float) -> str:
        """Returns "3.2 h, 3.6 GB of memory, 5.4 GB of disk" on a machine of ``speed`` operations per second."""
        hours = self.flops / speed / 3600
        time = f"{hours:,.1f} h" if hours >= 1 else f"{60 * hours:,.0f} min"
        return f"{time}, {self.memory / 1e9:.1f} GB of memory, {self.disk / 1e9:.1f} GB of disk"


TEST_PICTURES = 5000  # of a test set; estimates do not open the data, which may not be there yet


def estimates(plan: Plan) -> Iterator[tuple[Step, StepEstimate | None]]:
    """Yields every command of a plan with its estimate; None for ``eval`` and for models of unknown size."""
    for step in plan.commands():
        yield step, _estimate(step, plan.paper)


def _estimate(step: Step, paper: Paper) -> StepEstimate | None:
    """Estimates a ``train`` or ``caption`` command from the model's size.

    Training takes 6 operations for each parameter and token, generation 2 (Kaplan et al. 2020, section 2.1). AdamW
    keeps weights, gradients and two moments in four bytes each; a checkpoint has weights and moments, a run two.
    """
    if not step.system or not (own := paper.systems[step.system]).parameters:
        return None
    if step.words[0] == "caption":
        return StepEstimate(2 * own.parameters * own.tokens * TEST_PICTURES, 4 * own.parameters, 200.0 * TEST_PICTURES)
    recipe = recipe_of(step)
    decoding = getattr(recipe.objective, "decoding", None)
    per_picture = max(recipe.training.captions_per_picture, decoding.samples if decoding else 1)
    captions = recipe.training.steps * recipe.training.batch_size * per_picture
    flops = (8 if decoding else 6) * own.parameters * own.tokens * captions
    return StepEstimate(flops, 16 * own.parameters, 2 * 12 * own.parameters)


def recipe_of(step: Step) -> Recipe:
    """Reads the recipe of a ``train`` command with its settings."""
    settings = [word for before, word in zip(step.words, step.words[1:], strict=False) if before == "--set"]
    return read_recipe(find_recipe(step.words[1]), settings)


@cache
def machine_speed() -> float:
    """Measures operations per second of float32 matrix products on this machine's GPU, else its CPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size, best = 4096 if device == "cuda" else 1024, float("inf")
    a = torch.rand(size, size, device=device)
    for _ in range(4):
        started = time.perf_counter()
        float((a @ a)[0, 0])
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best
