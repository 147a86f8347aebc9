"""The papers' tables: their systems, test sets and metrics, and the figures that the papers print.

There is one TOML file per paper in ``shipped/tables``. `Plan.commands` turns a table into ``train``, ``caption`` and
``eval`` commands, which ``tellapart tables`` prints or runs; `Plan.figures` reads their results. The definitions also
name the experimental conditions and measures that correspond to a system and a column on `scenes`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, ValidationError, model_validator

from tellapart.data.reader import READERS
from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.metrics.spice_tool import find_tool
from tellapart.recipe.reading import PAPERS, explain, find_recipe, read_recipe, read_tables
from tellapart.recipe.schema import Recipe, TestSet
from tellapart.utils.options import Strict, fill_in
from tellapart.utils.registry import is_dotted

CLIP = "openai/clip-vit-base-patch32"


SOURCES = ("metric", "words", "setting", "log", "study", "command")


class Column(Strict):
    """A column of a table; its cells usually show a metric on a test set.

    metric: a metric of ``eval``.
    words: shows each system's most distinctive words instead of a figure: "adjective" or "noun".
    setting: a key of the row's recipe, or several joined by ``*`` for their product.
    log: name of a value that training logged at each validation. study: a figure of the table's study with people.
    command: words of a command whose output file is the cell; ``{model}``, ``{data}``, ``{llm}`` and ``{mllm}`` stand
        for the row's captioner, the test set and the options.
    file: name of the command's output file. scenes: the measure that corresponds to the column on `scenes`.
    note: why a column without any of these cannot be measured here.
    """

    name: str
    test: str = ""
    metric: str = ""
    words: Literal["", "adjective", "noun"] = ""
    setting: str = ""
    log: str = ""
    study: str = ""
    command: tuple[str, ...] = ()
    file: str = ""
    scenes: str = ""
    note: str = ""

    @property
    def evaluated(self) -> bool:
        """Returns whether ``eval`` measures the column."""
        return bool(self.metric or self.words)

    @property
    def source(self) -> str:
        """Returns the name of the field that defines the cells; "" if there is none."""
        return next((name for name in SOURCES if getattr(self, name)), "")


class Row(Strict):
    """A row: labels, the system, and what the paper prints (a figure, words, or "" for nothing).

    instead: test sets that replace a column's for this row, e.g. with other references.
    """

    labels: tuple[str, ...]
    system: str
    paper: tuple[float | str, ...]
    instead: dict[str, str] = Field(default_factory=dict)


class System(Strict):
    """The source of a row's captions: exactly one of ``recipe``, ``run``, ``model``, ``human`` and ``file``.

    recipe, set: a recipe to train, and its settings as in ``--set``.
    start: the system whose model the training starts from.
    until: the system whose run sets the goal of the training (``validation.until``).
    run: the system whose model is used with other ``caption`` options; "3:NAME" for a system of another paper.
    model: a captioner's name. human: uses references as captions, as ``--human`` of ``eval``.
    file: a captioner or captions that the user provides; the text says which.
    caption: words of ``caption``. parameters, tokens: model size, tokens per picture and caption, for estimates.
    scenes, stage: the condition for the system on `scenes`, and the stage whose boosted captions are its references.
    """

    recipe: str = ""
    set: tuple[str, ...] = ()
    start: str = ""
    until: str = ""
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
            raise ValueError("a system needs exactly one of recipe, run, model, human and file")
        return self


class PaperTable(Strict):
    """A printed table or figure.

    id: "5", "F3" for a figure, or "S1" for a sweep described in the text.
    study: words of ``study create``, for columns that people answer.
    note: differences from the paper's table.
    """

    id: str
    title: str
    labels: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    study: tuple[str, ...] = ()
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
                    raise ValueError(f"table {table.id}: unknown system '{row.system}'")
            columns = [column.test for column in table.columns if column.test]
            for test in (*columns, *(test for row in table.rows for test in row.instead.values())):
                if test not in self.tests:
                    raise ValueError(f"table {table.id}: unknown test set '{test}'")
        for name, system in self.systems.items():
            for other in filter(None, (system.start, system.until, system.run)):
                if ":" not in other and other not in self.systems:
                    raise ValueError(f"system {name}: unknown system '{other}'")
        return self


@cache
def read_paper(number: int) -> Paper:
    """Reads the tables of paper 1, 2, 3 or 4."""
    try:
        return Paper.model_validate(read_tables(number))
    except ValidationError as error:
        raise UsageError(f"tables/paper{number}.toml: {explain(error, Paper)}") from None


def find_tables(names: Sequence[str]) -> list[tuple[Paper, PaperTable]]:
    """Returns the tables that ``2:5``, ``3:1-5``, ``1:F4`` or ``4`` (all of paper 4) name, in order; all without names.

    Raises `UsageError` for a malformed name, an unknown paper or an unknown table.
    """
    tables: dict[tuple[int, str], tuple[Paper, PaperTable]] = {}
    for name in names or list(map(str, PAPERS)):
        number, colon, ids = name.partition(":")
        if number not in map(str, PAPERS) or (colon and not ids):
            raise UsageError(f"'{name}' is not a table; expected PAPER:TABLE, such as 2:5, 3:1-5, 1:F4, or 4:")
        paper = read_paper(int(number))
        known = {table.id: table for table in paper.tables}
        for id in _expand(ids, name) if colon else known:
            if id not in known:
                raise UsageError(f"paper {number} has no table '{id}'{nearest(id, known)}; known: {', '.join(known)}")
            tables[paper.number, id] = (paper, known[id])
    return list(tables.values())


def _expand(ids: str, name: str) -> Iterator[str]:
    """Yields "1", "2", "5" for "1-2,5"."""
    for part in ids.upper().split(","):
        first, dash, last = part.partition("-")
        letter = first[:1] if first[:1] in ("F", "S") else ""
        start, stop = first.removeprefix(letter), (last or first).removeprefix(letter)
        if not (start.isdecimal() and stop.isdecimal()) or (dash and int(stop) < int(start)):
            raise UsageError(
                f"'{name}': cannot parse '{part}'; expected a number, F and a number, or a range such as 1-5"
            )
        yield from (f"{letter}{number}" for number in range(int(start), int(stop) + 1))


@dataclass(frozen=True)
class Step:
    """A command of a plan.

    words: the words after ``tellapart``. out: the file or folder that it writes.
    system: the system whose model it runs.
    read_by: the file that is made from ``out``, for a resumable command whose ``out`` may exist unfinished.
    """

    words: tuple[str, ...]
    out: Path
    system: System | None = None
    read_by: Path | None = None

    @property
    def done(self) -> bool:
        """Returns whether the command can be skipped. ``boost`` always runs, to request the missing answers."""
        return self.words[0] != "boost" and self.out.exists() and (self.read_by is None or self.read_by.exists())

    @property
    def uses_models(self) -> bool:
        """Returns whether the command takes ``--device``, which ``eval`` without a model rejects."""
        scoring = self.words[0] == "eval" and "--scorer" in self.words
        return self.system is not None or scoring

    def typed(self) -> str:
        """Formats the command as a user types it, with ``$TELLAPART_DATA`` as a variable."""
        return " ".join(("tellapart", *map(_quoted, self.words)))


def _quoted(word: str) -> str:
    plain = shlex.quote(word.replace("$TELLAPART_DATA", "_TELLAPART_DATA_"))
    if "$TELLAPART_DATA" not in word:
        return plain
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`").replace("$", "\\$")
    return '"' + escaped.replace("\\$TELLAPART_DATA", "$TELLAPART_DATA") + '"'


@dataclass(frozen=True)
class Given:
    """The inputs that the user provides for the tables.

    files, captioners: caption files and captioners' names, by system.
    settings: ``--set`` for every ``train`` command, after the system's own.
    without: metrics that cannot be computed here, each with the reason.
    judge, llm, mllm: models for ``--llm-judge`` of ``eval``, and for ``--llm`` and ``--mllm`` of ``boost``.
    """

    files: Mapping[str, Path] = field(default_factory=dict)
    captioners: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    without: Mapping[str, str] = field(default_factory=dict)
    judge: str = ""
    llm: str = ""
    mllm: str = ""


Figure = float | str | list[tuple[int, float]]  # a number, words, a file, or values by training step


@dataclass(frozen=True)
class Plan:
    """The plan of a table: the requested rows, the commands in order, and what is missing."""

    paper: Paper
    table: PaperTable
    rows: tuple[Row, ...]
    folder: Path
    given: Given = Given()

    def missing(self) -> dict[str, str]:
        """Returns the reasons why rows cannot be computed, by system."""
        return {row.system: why for row in self.rows if (why := self._lacking(row.system))}

    def _lacking(self, system: str, *, model: bool = False) -> str:
        """Returns what the user must provide for a system's captions, or for its ``model``; "" if nothing."""
        plan, name = self._at(system)
        definition = plan.paper.systems[name]
        if name in self.given.captioners or (name in self.given.files and not model):
            return ""
        if base := definition.run or definition.start:
            why = plan._lacking(base, model=True)
        else:
            why = definition.file and f"needs {definition.file} captioner: --captioner {name}=NAME (docs/captioners.md)"
        return why if model or not why else f"{why}; or its captions: --captions {name}=FILE"

    def _at(self, system: str) -> tuple[Plan, str]:
        """Resolves a system of any paper, e.g. "3:blip", to its paper's plan and its name there."""
        number, _, name = system.rpartition(":")
        return (replace(self, paper=read_paper(int(number))) if number else self), name

    def notes(self) -> list[str]:
        """Returns notes for the table's readers: its own note, why cells are empty, and notes of the results."""
        rows = [f"{system} {why}" for system, why in self.missing().items()]
        empty: dict[str, list[str]] = {}
        for column in self.table.columns:
            empty.setdefault(self._why_empty(column), []).append(column.name)
        lines_by_name = {
            f"{test}: {note}": None for test in self._tests() for note in self._results(test).get("notes", ()) if note
        }
        without = [f"{', '.join(names)}: {why}" for why, names in empty.items() if why]
        return [*filter(None, [self.table.note]), *rows, *without, *lines_by_name]

    def _why_empty(self, column: Column) -> str:
        """Returns why a column has no figures here; "" if it has."""
        models = {"llm": self.given.llm, "mllm": self.given.mllm}
        if lacking := [name for name, model in models.items() if f"{{{name}}}" in column.command and not model]:
            return "requires models: " + " ".join(f"--{name} BACKEND" for name in lacking)
        if column.study:
            return f"waiting for participants: tellapart study serve {self.study_folder}; then repeat this command"
        return self.given.without.get(column.metric, column.note)

    def made(self) -> list[Row]:
        """Returns the rows that can be computed."""
        absent = self.missing()
        return [row for row in self.rows if row.system not in absent]

    def cells(self, *sources: str) -> Iterator[tuple[Row, Column, str]]:
        """Yields the row, column and test set of every measurable cell with one of these ``sources``."""
        for row in self.made():
            for column in self.table.columns:
                missing = column.metric in self.given.without or (column.command and self._why_empty(column))
                if column.source in (sources or SOURCES) and not missing:
                    yield row, column, row.instead.get(column.test, column.test)

    def _tests(self) -> dict[str, list[str]]:
        """Returns the systems that ``eval`` measures on each test set."""
        tests: dict[str, list[str]] = {}
        for row, _, test in self.cells("metric", "words"):
            if row.system not in tests.setdefault(test, []):
                tests[test].append(row.system)
        return tests

    def needed_files(self) -> dict[Path, str]:
        """Returns the missing files below ``$TELLAPART_DATA`` that commands read, each with a description.

        The description is the source that a test set gives for the file, otherwise what the reader of its kind reads.
        """
        named = {fill_in(name): why for on in self.paper.tests.values() for name, why in on.needs.items()}
        folders = {(Path(name).parent, Path(name).suffix): why for name, why in named.items()}
        needed = {}
        for step in self.commands():
            data = str(recipe_of(step).data) if step.words[0] == "train" else ""
            for kind, name in () if step.done else _data_file().findall(fill_in(" ".join((*step.words, data)))):
                path = Path(name)
                why = named.get(name) or folders.get((path.parent, path.suffix))
                if not path.exists():
                    needed[path] = why or (READERS.find(kind).help if kind else "features, docs/recurrent.md")
        return needed

    def commands(self) -> list[Step]:
        """Returns every command once, each after the commands whose results it reads."""
        steps: dict[Path, Step] = {}
        for row, column, test in self.cells():
            brought = row.system in self.given.files and column.source != "log"
            for step in () if brought or column.source == "setting" else self._training(row.system):
                steps[step.out] = step
            if column.command:
                step = self._command(row.system, column, test)
                steps[step.out] = step
        for test, systems in self._tests().items():
            evaluated = self._eval(test, systems)
            for system in systems:
                if (caption := self._caption(system, test, evaluated.out)) is not None:
                    steps[caption.out] = caption
            steps[evaluated.out] = evaluated
        for step in self._study():
            steps[step.out] = step
        return list(steps.values())

    def run_of(self, system: str) -> Path:
        """Returns the folder of a system's training run, which all tables of a paper share."""
        plan, name = self._at(system)
        return self.folder / "runs" / f"paper{plan.paper.number}-{name}"

    def model_of(self, system: str) -> str:
        """Returns the captioner's name: the user's captioner, the run of a trained system, or the model."""
        plan, name = self._at(system)
        definition = plan.paper.systems[name]
        if name in self.given.captioners:
            return self.given.captioners[name]
        return (
            plan.model_of(definition.run)
            if definition.run
            else str(plan.run_of(name))
            if definition.recipe
            else definition.model
        )

    def _code(self, system: str) -> tuple[str, ...]:
        """Returns the option that allows a model trained from the user's own code to run."""
        plan, name = self._at(system)
        if name in self.given.captioners:
            code = self.given.captioners[name].partition("?")[0]
            return ("--allow-code", code) if is_dotted(code) else ()
        definition = plan.paper.systems[name]
        return plan._code(definition.run or definition.start) if definition.run or definition.start else ()

    def _training(self, system: str) -> Iterator[Step]:
        plan, name = self._at(system)
        definition = plan.paper.systems[name]
        if name in self.given.captioners:
            return
        for other in filter(None, (definition.run, definition.start, definition.until)):
            yield from plan._training(other)
        if not definition.recipe:
            return
        settings = list(definition.set)
        if definition.start:
            settings.insert(0, f"captioner.name={plan.model_of(definition.start)}")
        if definition.until:
            settings.append(f"validation.until={plan.run_of(definition.until)}")
        words = ["train", definition.recipe, "--out", str(plan.run_of(name)), "--resume"]
        for setting in (*settings, *self.given.settings):
            words += ["--set", setting]
        step = Step((*words, *plan._code(name)), plan.run_of(name) / "results.json", definition)
        if recipe_of(step).data.test is None:  # e.g. instructions: such a run has no results
            step = replace(step, out=plan.run_of(name) / "model" / "config.json")
        yield step

    def captions_of(self, system: str, test: str) -> Path:
        """Returns the path of a system's captions of a test set."""
        brought = self.given.files.get(system)
        return brought or self.folder / "captions" / f"paper{self.paper.number}-{test}" / f"{system}.jsonl"

    def _caption(self, system: str, test: str, read_by: Path) -> Step | None:
        definition, on = self.paper.systems[system], self.paper.tests[test]
        if definition.human or system in self.given.files:
            return None
        out = self.captions_of(system, test)
        length = () if on.max_tokens is None else ("--max-tokens", str(on.max_tokens))
        model = self.model_of(system)
        for setting in definition.set:  # a captioner trained on feature files
            if setting.startswith("captioner.features="):
                model += f"{'&' if '?' in model else '?'}features={setting.partition('=')[2]}"
        words = ("caption", model, on.captioned or on.data, "-o", str(out), *definition.caption, *length)
        return Step((*words, *self._code(system)), out, definition, read_by)

    def result_of(self, test: str) -> Path:
        """Returns the path of the results on a test set."""
        return self._eval(test, self._tests()[test]).out

    def _eval(self, test: str, systems: Sequence[str]) -> Step:
        on = self.paper.tests[test]
        columns = [column for _, column, where in self.cells("metric", "words") if where == test]
        metrics = dict.fromkeys(column.metric or "length" for column in columns)
        scorer = ["--scorer", CLIP] if on.has_pictures and any(column.metric for column in columns) else []
        words = ["eval", "--data", on.data, *scorer, "--metrics", ",".join(metrics), *on.options(metrics)]
        if any(column.words for column in columns):
            words += ["--set", "words=10"]
        if any(metric.startswith(JUDGED) for metric in metrics):
            words += ["--llm-judge", self.given.judge, "--set", f"ledger={self.folder / 'judge.ledger.jsonl'}"]
        words.append("--allow-missing")  # for pictures without references, and captions of other pictures
        words += self._captioned(test, systems)
        words += [option for system in systems if (definition := self.paper.systems[system]).human
                  for option in ("--human", definition.human)]  # fmt: skip
        digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:8]
        out = self.folder / "results" / f"paper{self.paper.number}-{test}-{digest}.json"
        return Step((*words, "-o", str(out)), out)

    def _captioned(self, test: str, systems: Sequence[str]) -> list[str]:
        """Returns the options with the systems' caption files, except for references used as a system."""
        return [
            option
            for system in systems
            if not self.paper.systems[system].human
            for option in ("--captions", str(self.captions_of(system, test)))
        ]

    def _command(self, system: str, column: Column, test: str) -> Step:
        """Returns the command that computes a cell and writes it to a file."""
        number = f"paper{self.paper.number}-{self.table.id}"
        out = self.folder / "files" / f"{number}-{system}-{column.file}"
        values = {"data": self.paper.tests[test].data, "llm": self.given.llm, "mllm": self.given.mllm}
        definition = self.paper.systems[system]
        if "{model}" in column.command:
            values["model"] = self.model_of(system)
        words = [word.format(**values) for word in column.command]
        code = self._code(system) if "model" in values else ()
        return Step((*words, "-o", str(out), *code), out, definition if "model" in values else None)

    @property
    def study_folder(self) -> Path:
        """Returns the folder of the table's study with people."""
        return self.folder / "studies" / f"paper{self.paper.number}-{self.table.id}"

    def _study(self) -> Iterator[Step]:
        """Yields the commands that prepare the table's study: captioning and creating the study."""
        tests = {test: None for _, _, test in self.cells("study")}
        systems = list(dict.fromkeys(row.system for row, _, _ in self.cells("study")))
        for test in tests:
            out = self.study_folder / "items.json"
            captions = (self._caption(system, test, out) for system in systems)
            yield from filter(None, captions)
            words = ["study", "create", *self.table.study, self.paper.tests[test].data, "-o", str(self.study_folder)]
            yield Step((*words, *self._captioned(test, systems)), out)

    def _results(self, test: str) -> dict[str, Any]:
        """Returns the results of ``eval`` on a test set; empty if it has not run."""
        path = self.result_of(test)
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def figures(self, study: Mapping[str, Mapping[str, float]] | None = None) -> dict[tuple[int, int], Figure]:
        """Returns our figures by row and column of the table, for commands that have run.

        ``study``: figures of the table's study, by system and name.
        """
        places = {id(row): place for place, row in enumerate(self.table.rows)}
        results = {test: self._results(test) for test in self._tests()}
        names = {test: self._names(result, test) for test, result in results.items()}
        figures: dict[tuple[int, int], Figure] = {}
        for row, column, test in self.cells():
            value: Figure | None = None
            if column.setting:
                *_, train = self._training(row.system)
                value = product_of(recipe_of(train), column.setting)
            elif column.log:
                value = logged(self.run_of(row.system), column.log)
            elif column.study:
                people = self.paper.systems[row.system].human
                stem = "human" if people else self.captions_of(row.system, test).stem
                value = (study or {}).get(stem, {}).get(column.study)
            elif column.command:
                out = self._command(row.system, column, test).out
                value = str(out) if out.exists() else None
            elif name := names[test].get(row.system):
                result = results[test]
                words = [word["lemma"] for word in result.get("words", {}).get(name, ()) if word["pos"] == column.words]
                value = ", ".join(words) if column.words else measured(result["systems"][name], column.metric)
            if value not in (None, "", []):
                assert value is not None
                figures[places[id(row)], self.table.columns.index(column)] = value
        return figures

    def intervals(self) -> dict[tuple[int, int], tuple[float, float]]:
        """Returns the 95 % intervals of measured figures, by row and column of the table."""
        places = {id(row): place for place, row in enumerate(self.table.rows)}
        results = {test: self._results(test) for test in self._tests()}
        names = {test: self._names(result, test) for test, result in results.items()}
        result = {}
        for row, column, test in self.cells():
            if column.metric and (name := names[test].get(row.system)):
                ends = [measured(results[test]["systems"][name], column.metric, end) for end in ("low", "high")]
                if ends[0] is not None and ends[1] is not None:
                    result[places[id(row)], self.table.columns.index(column)] = (ends[0], ends[1])
        return result

    def _names(self, results: Mapping[str, Any], test: str) -> dict[str, str]:
        """Returns the names that ``eval`` gives the systems: in the order of their files, and ``human``."""
        systems = self._tests()[test]
        files = [system for system in systems if not self.paper.systems[system].human]
        names = [name for name in results.get("systems", {}) if name != "human"]
        people = {system: "human" for system in systems if system not in files and results}
        return dict(zip(files, names, strict=bool(names))) | people


def _data_file() -> re.Pattern[str]:
    """Returns a pattern that matches ``kind:FILE`` or ``FILE`` below the folder of the real data."""
    return re.compile(rf"(?:(\w+):)?({re.escape(fill_in('$TELLAPART_DATA'))}/[^'\"?,\]\s]+)")


def make_plan(
    paper: Paper, table: PaperTable, folder: Path, rows: Sequence[str] = (), given: Given | None = None
) -> Plan:
    """Plans a table's rows; all if ``rows`` is empty. ``rows``: systems, or labels joined by spaces.

    Raises `UsageError` for an unknown row.
    """
    names = [{row.system, " ".join(filter(None, row.labels))} for row in table.rows]
    for name in rows:
        if not any(name in row_names for row_names in names):
            raise UsageError(
                f"table {paper.number}:{table.id} has no row '{name}'{nearest(name, set().union(*names))}; known: "
                f"{', '.join(dict.fromkeys(row.system for row in table.rows))}"
            )
    chosen = [row for row, row_names in zip(table.rows, names, strict=True) if not rows or row_names & set(rows)]
    return Plan(paper, table, tuple(chosen), folder, given or Given())


def measured(results: Mapping[str, Any], metric: str, part: str = "value") -> float | None:
    """Returns a part of a system's interval for a metric; judge metrics have a suffix with the judge and the dates."""
    keys = [key for key in results if key == metric or (metric.startswith(JUDGED) and key.startswith(f"{metric}@"))]
    return results[keys[0]].get(part) if keys else None


JUDGED = "smile_"  # metrics that an LLM judge on a server measures


def absent_metrics(judge: str = "") -> dict[str, str]:
    """Returns the metrics that cannot be measured here, each with the command that enables it."""
    absent = {}
    if not judge:
        metrics = {
            column.metric for number in PAPERS for table in read_paper(number).tables for column in table.columns
        }
        absent = {name: "needs a judge: --llm-judge openai:MODEL@URL" for name in metrics if name.startswith(JUDGED)}
    try:
        find_tool()
    except TellapartError as error:
        absent["spice"] = str(error)
    return absent


def logged(run: Path, name: str) -> list[tuple[int, float]]:
    """Returns (step, value) of what a run's validations logged under a name, in order; empty if it has not run.

    name: a name or a prefix, because "recall@1.random" is followed by the pool size.
    """
    path = run / "log.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    records = [record for record in map(json.loads, lines) if record.get("event") == "validation"]
    values = ((record["step"], value) for record in records for key, value in record.items() if key.startswith(name))
    return [(int(step), float(value)) for step, value in values]


def product_of(recipe: Recipe, keys: str) -> float:
    """Returns the product of a recipe's values at these keys, e.g. ``training.batch_size*training.steps``."""
    return math.prod(float(attrgetter(key)(recipe)) for key in keys.split("*"))


@dataclass(frozen=True)
class StepEstimate:
    """The order of magnitude of a command's cost: floating-point operations, and minimum bytes of memory and disk."""

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


TEST_PICTURES = 5000  # per test set; estimates do not open the data, which may be missing


def estimates(plan: Plan) -> Iterator[tuple[Step, StepEstimate | None]]:
    """Yields every command of a plan with its estimate; None for ``eval`` and for models of unknown size."""
    for step in plan.commands():
        yield step, _estimate(step)


def _estimate(step: Step) -> StepEstimate | None:
    """Estimates a ``train`` or ``caption`` command from the model's size.

    Training takes 6 operations per parameter and token, generation 2 (Kaplan et al. 2020, section 2.1). AdamW keeps
    weights, gradients and two moments at four bytes each. A checkpoint has weights and moments; a run has two.
    """
    system = step.system
    if system is None or not system.parameters or step.words[0] not in ("train", "caption"):
        return None
    if step.words[0] == "caption":
        return StepEstimate(
            2 * system.parameters * system.tokens * TEST_PICTURES, 4 * system.parameters, 200.0 * TEST_PICTURES
        )
    recipe = recipe_of(step)
    decoding = getattr(recipe.objective, "decoding", None)
    per_picture = max(recipe.training.captions_per_picture, decoding.samples if decoding else 1)
    captions = recipe.training.steps * recipe.training.batch_size * per_picture
    flops = (8 if decoding else 6) * system.parameters * system.tokens * captions
    return StepEstimate(flops, 16 * system.parameters, 2 * 12 * system.parameters)


def recipe_of(step: Step) -> Recipe:
    """Reads the recipe of a ``train`` command with its settings."""
    settings = [word for before, word in zip(step.words, step.words[1:], strict=False) if before == "--set"]
    return read_recipe(find_recipe(step.words[1]), settings)


@cache
def machine_speed() -> float:
    """Measures the FLOP/s of float32 matrix products on this machine's GPU, or on its CPU if there is none."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size, best = 4096 if device == "cuda" else 1024, float("inf")
    a = torch.rand(size, size, device=device)
    for _ in range(4):
        started = time.perf_counter()
        float((a @ a)[0, 0])
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best
