"""Plans the commands that reproduce a paper's table.

`Plan.commands` turns a table into ``train``, ``caption`` and ``eval`` commands, which ``tellapart tables`` prints or
runs. `recipe.table_figures` reads the results of these commands.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from tellapart.data.reader import READERS
from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.metrics.spice_score import find_tool
from tellapart.recipe.paper_tables import PAPERS, SOURCES, Column, Paper, PaperTable, Row, System, read_paper
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.schema import Recipe, TestSet
from tellapart.recipe.shipped_recipes import find_recipe
from tellapart.utils.allowed_code import is_dotted
from tellapart.utils.documentation import page_url
from tellapart.utils.recipe_names import fill_in

CLIP = "openai/clip-vit-base-patch32"
JUDGED = "smile_"  # prefix of the metrics that an LLM judge on a server measures


@dataclass(frozen=True)
class Step:
    """A command in a plan.

    words: the command-line arguments of ``tellapart``.
    out: the file or folder that the command writes.
    system: the system whose model the command runs.
    read_by: the output of the next command. If it exists, ``out`` is complete; needed for commands that write ``out``
        incrementally.
    """

    words: tuple[str, ...]
    out: Path
    system: System | None = None
    read_by: Path | None = None

    @property
    def done(self) -> bool:
        """Returns True if the command can be skipped. ``boost`` always runs, so that it requests missing answers."""
        return self.words[0] != "boost" and self.out.exists() and (self.read_by is None or self.read_by.exists())

    @property
    def uses_models(self) -> bool:
        """Returns True if the command accepts ``--device``, which ``eval`` rejects if it does not use a model."""
        scoring = self.words[0] == "eval" and "--scorer" in self.words
        return self.system is not None or scoring

    def typed(self) -> str:
        """Formats the command as a user would type it. Keeps ``$TELLAPART_DATA`` as a variable."""
        return " ".join(("tellapart", *map(_quoted, self.words)))


def _quoted(word: str) -> str:
    plain = shlex.quote(word.replace("$TELLAPART_DATA", "_TELLAPART_DATA_"))
    if "$TELLAPART_DATA" not in word:
        return plain
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`").replace("$", "\\$")
    return '"' + escaped.replace("\\$TELLAPART_DATA", "$TELLAPART_DATA") + '"'


class Source(NamedTuple):
    """Where a system's captions come from.

    model: the name of its captioner: the user's captioner, its training run, or its model.
    code: the option that allows the user's own code to run, if the model was trained from such code.
    steps: the commands that train the model; the last one trains the model itself.
    lacking: what the user must still provide for the model, or "".
    """

    model: str
    code: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    lacking: str = ""


@dataclass(frozen=True)
class Given:
    """The inputs that the user provides for the tables.

    files, captioners: caption files and names of captioners, by system.
    settings: values of ``--set`` for every ``train`` command, which follow the system's own settings.
    without: maps each metric that cannot be computed here to the reason.
    judge, llm, mllm: models for ``eval --llm-judge``, ``boost --llm`` and ``boost --mllm``.
    """

    files: Mapping[str, Path] = field(default_factory=dict)
    captioners: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    without: Mapping[str, str] = field(default_factory=dict)
    judge: str = ""
    llm: str = ""
    mllm: str = ""


@dataclass(frozen=True)
class Plan:
    """The plan for a table: the requested rows, the commands in order, and missing inputs."""

    paper: Paper
    table: PaperTable
    rows: tuple[Row, ...]
    folder: Path
    given: Given = Given()
    sources: dict[tuple[int, str], Source] = field(default_factory=dict, compare=False)  # those found so far

    def missing(self) -> dict[str, str]:
        """Returns the systems whose rows cannot be computed, with the reason for each system."""
        lacking = {
            row.system: self.source(row.system).lacking for row in self.rows if row.system not in self.given.files
        }
        return {system: f"{why}; or its captions: --captions {system}=FILE" for system, why in lacking.items() if why}

    def _at(self, system: str) -> tuple[Plan, str]:
        """Resolves a system from any paper, such as "3:blip", to that paper's plan and the system's name in it."""
        number, _, name = system.rpartition(":")
        return (replace(self, paper=read_paper(int(number))) if number else self), name

    def source(self, system: str) -> Source:
        """Returns where a system's captions come from."""
        plan, name = self._at(system)
        key = plan.paper.number, name
        if key not in self.sources:
            self.sources[key] = plan._source(name)
        return self.sources[key]

    def _source(self, name: str) -> Source:
        definition = self.paper.systems[name]
        if (captioner := self.given.captioners.get(name)) is not None:
            code = captioner.partition("?")[0]
            return Source(captioner, ("--allow-code", code) if is_dotted(code) else ())
        source = Source(definition.model)
        if base := definition.run or definition.start:
            source = self.source(base)
        elif definition.file:
            needed = f"needs {definition.file}: --captioner {name}=NAME ({page_url('captioners.md')})"
            source = Source(name, lacking=needed)  # the name stands for the model
        if not definition.recipe:
            return source
        words, steps = ["train", definition.recipe, "--out", str(self.run_of(name)), "--resume"], source.steps
        settings = list(definition.set)
        if definition.start:
            settings.insert(0, f"captioner.name={source.model}")
        if definition.until:
            settings.append(f"validation.until={self.run_of(definition.until)}")
            steps += self.source(definition.until).steps
        for setting in (*settings, *self.given.settings):
            words += ["--set", setting]
        step = Step((*words, *source.code), self.run_of(name) / "results.json", definition)
        if not source.lacking and recipe_of(step).data.test is None:  # e.g. instructions; such a run has no results
            step = replace(step, out=self.run_of(name) / "model" / "config.json")
        return source._replace(model=str(self.run_of(name)), steps=(*steps, step))

    def notes(self) -> list[str]:
        """Returns notes for readers of the table: its own note, and why cells are empty."""
        rows = [f"{system} {why}" for system, why in self.missing().items()]
        empty: dict[str, list[str]] = {}
        for column in self.table.columns:
            empty.setdefault(self._why_empty(column), []).append(column.name)
        without = [f"{', '.join(names)}: {why}" for why, names in empty.items() if why]
        return [*filter(None, [self.table.note]), *rows, *without]

    def _why_empty(self, column: Column) -> str:
        """Returns why a column has no figures here, or "" if it has figures."""
        models = {"llm": self.given.llm, "mllm": self.given.mllm}
        if lacking := [name for name, model in models.items() if f"{{{name}}}" in column.command and not model]:
            return "requires models: " + " ".join(f"--{name} BACKEND" for name in lacking)
        if column.study:
            return f"waiting for participants; run: tellapart study serve {self.study_folder}, then repeat this command"
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

    def systems_by_test(self) -> dict[str, list[str]]:
        """Returns the systems that ``eval`` measures on each test set."""
        tests: dict[str, list[str]] = {}
        for row, _, test in self.cells("metric", "words"):
            if row.system not in tests.setdefault(test, []):
                tests[test].append(row.system)
        return tests

    def needed_files(self) -> dict[Path, str]:
        """Returns the missing files below ``$TELLAPART_DATA`` that commands read, with a description of each file.

        The description is the file's source, if the test set names it, or else the layout that the reader expects.
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
        """Returns all commands without duplicates. Each command follows the commands whose results it reads."""
        steps: dict[Path, Step] = {}
        for row, column, test in self.cells():
            brought = row.system in self.given.files and column.source != "log"
            for step in () if brought or column.source == "setting" else self.source(row.system).steps:
                steps[step.out] = step
            if column.command:
                step = self.command(row.system, column, test)
                steps[step.out] = step
        for test, systems in self.systems_by_test().items():
            evaluated = self._eval(test, systems)
            for system in systems:
                if (caption := self._caption(system, test, evaluated.out)) is not None:
                    steps[caption.out] = caption
            steps[evaluated.out] = evaluated
        for step in self._study():
            steps[step.out] = step
        return list(steps.values())

    def run_of(self, system: str) -> Path:
        """Returns the folder of a system's training run, which all tables in a paper share."""
        plan, name = self._at(system)
        return self.folder / "runs" / f"paper{plan.paper.number}-{name}"

    def captions_of(self, system: str, test: str) -> Path:
        """Returns the path of a system's captions for a test set."""
        brought = self.given.files.get(system)
        return brought or self.folder / "captions" / f"paper{self.paper.number}-{test}" / f"{system}.jsonl"

    def _caption(self, system: str, test: str, read_by: Path) -> Step | None:
        definition, on = self.paper.systems[system], self.paper.tests[test]
        if definition.human or system in self.given.files:
            return None
        out, source = self.captions_of(system, test), self.source(system)
        length = () if on.max_tokens is None else ("--max-tokens", str(on.max_tokens))
        model = source.model
        for setting in definition.set:  # a captioner trained on feature files
            if setting.startswith("captioner.features="):
                model += f"{'&' if '?' in model else '?'}features={setting.partition('=')[2]}"
        words = ("caption", model, on.captioned or on.data, "-o", str(out), *definition.caption, *length)
        return Step((*words, *source.code), out, definition, read_by)

    def result_of(self, test: str) -> Path:
        """Returns the path of the results on a test set."""
        return self._eval(test, self.systems_by_test()[test]).out

    def _eval(self, test: str, systems: Sequence[str]) -> Step:
        on = self.paper.tests[test]
        columns = [column for _, column, where in self.cells("metric", "words") if where == test]
        metrics = dict.fromkeys(column.metric or "length" for column in columns)
        scorer = ["--scorer", CLIP] if on.has_pictures and any(column.metric for column in columns) else []
        words = ["eval", "--data", on.data, *scorer, "--metrics", ",".join(metrics), *eval_options(on, metrics)]
        if any(column.words for column in columns):
            words += ["--set", "words=10"]
        if any(metric.startswith(JUDGED) for metric in metrics):
            words += ["--llm-judge", self.given.judge, "--set", f"ledger={self.folder / 'judge.ledger.jsonl'}"]
        words.append("--allow-missing")  # some pictures have no references, and some captions are for other pictures
        words += self._captioned(test, systems)
        words += [option for system in systems if (definition := self.paper.systems[system]).human
                  for option in ("--human", definition.human)]  # fmt: skip
        digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:8]
        out = self.folder / "results" / f"paper{self.paper.number}-{test}-{digest}.json"
        return Step((*words, "-o", str(out)), out)

    def _captioned(self, test: str, systems: Sequence[str]) -> list[str]:
        """Returns the options that name the systems' caption files. Omits systems that consist of references."""
        return [
            option
            for system in systems
            if not self.paper.systems[system].human
            for option in ("--captions", str(self.captions_of(system, test)))
        ]

    def command(self, system: str, column: Column, test: str) -> Step:
        """Returns the command that computes a cell and writes it to a file."""
        number = f"paper{self.paper.number}-{self.table.id}"
        out = self.folder / "files" / f"{number}-{system}-{column.file}"
        source = self.source(system) if "{model}" in column.command else Source("")
        data, llm, mllm = self.paper.tests[test].data, self.given.llm, self.given.mllm
        words = [word.format(data=data, llm=llm, mllm=mllm, model=source.model) for word in column.command]
        definition = self.paper.systems[system] if "{model}" in column.command else None
        return Step((*words, "-o", str(out), *source.code), out, definition)

    @property
    def study_folder(self) -> Path:
        """Returns the folder of the table's human study."""
        return self.folder / "studies" / f"paper{self.paper.number}-{self.table.id}"

    def _study(self) -> Iterator[Step]:
        """Yields the commands that prepare the table's human study: they caption pictures and create the study."""
        cells = list(self.cells("study"))
        tests, systems = dict.fromkeys(test for *_, test in cells), list(dict.fromkeys(row.system for row, *_ in cells))
        for test in tests:
            out = self.study_folder / "items.json"
            captions = (self._caption(system, test, out) for system in systems)
            yield from filter(None, captions)
            words = ["study", "create", *self.table.study, self.paper.tests[test].data, "-o", str(self.study_folder)]
            yield Step((*words, *self._captioned(test, systems)), out)


def eval_options(test: TestSet, metrics: Collection[str]) -> Iterator[str]:
    """Yields the options of ``eval``, except ``--data``, that evaluate ``metrics`` on a test set."""
    pool = test.distractors if any(name.endswith(".hard") for name in metrics) else None
    model = test.language_model if "ppl" in metrics else None
    for option, values in {"bags": test.bags, "distractors": (pool,), "references": test.references}.items():
        for value in filter(None, values):
            yield from (f"--{option}", value)
    if model:
        yield from ("--set", f"language_model={model}")


def _data_file() -> re.Pattern[str]:
    """Returns a pattern that matches ``kind:FILE`` or ``FILE``, where the file is below ``$TELLAPART_DATA``."""
    return re.compile(rf"(?:(\w+):)?({re.escape(fill_in('$TELLAPART_DATA'))}/[^'\"?,\]\s]+)")


def make_plan(
    paper: Paper, table: PaperTable, folder: Path, rows: Sequence[str] = (), given: Given | None = None
) -> Plan:
    """Plans the rows of a table. Raises `UsageError` for an unknown row.

    ``rows``: names of systems, or a row's labels joined by spaces. If empty, plans all rows.
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


def absent_metrics(judge: str = "") -> dict[str, str]:
    """Returns the metrics that cannot be measured here, with a hint for each metric on how to enable it."""
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


def recipe_of(step: Step) -> Recipe:
    """Reads the recipe of a ``train`` command and applies the command's settings."""
    settings = [word for before, word in zip(step.words, step.words[1:], strict=False) if before == "--set"]
    return read_recipe(find_recipe(step.words[1]), settings)
