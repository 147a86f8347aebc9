"""The papers' tables: their systems, test sets and metrics, and the published figures.

There is one TOML file per paper in ``shipped/tables``; it also names the experimental conditions and measures that
correspond to a system and a column on `scenes`. `recipe.table_plan` plans the commands that reproduce a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from tellapart.errors import UsageError, nearest
from tellapart.recipe.mistakes import explain
from tellapart.recipe.named_test_sets import PAPERS, read_tables
from tellapart.recipe.schema import TestSet
from tellapart.utils.option_tables import Strict

SOURCES = ("metric", "words", "setting", "log", "study", "command")


class Column(Strict):
    """A column of a table; its cells usually show a metric on a test set.

    metric: a metric of ``eval``.
    words: shows each system's most distinctive words instead of a figure: "adjective" or "noun".
    setting: a key of the row's recipe, or several joined by ``*`` for their product.
    log: name of a value that training logs at each validation.
    study: a figure from the table's human study.
    command: arguments of a command whose output file is the cell; ``{model}``, ``{data}``, ``{llm}`` and ``{mllm}``
        stand for the row's captioner, the test set and the options.
    file: name of the command's output file.
    scenes: the measure that corresponds to the column on `scenes`.
    note: for a column without any of these, why it cannot be measured here.
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
    """A row: its labels, its system, and the published cells (a figure, words, or "" if empty).

    instead: test sets that replace a column's for this row, e.g. with other references.
    """

    labels: tuple[str, ...]
    system: str
    paper: tuple[float | str, ...]
    instead: dict[str, str] = Field(default_factory=dict)


class System(Strict):
    """The source of a row's captions: exactly one of ``recipe``, ``run``, ``model``, ``human`` and ``file``.

    recipe, set: a recipe to train, and overrides as in ``--set``.
    start: the system whose model the training starts from.
    until: the system whose run sets the value at which training stops (``validation.until``).
    run: the system whose model is used with other ``caption`` options; "3:NAME" for a system of another paper.
    model: a captioner's name.
    human: how to use references as captions, as in ``eval --human``.
    file: description of a captioner or captions that the user must provide.
    caption: command-line arguments for ``tellapart caption``.
    scenes: the condition that corresponds to the system on `scenes`.
    stage: the stage whose boosted captions are the system's references.
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
    study: arguments of ``study create``, for columns that report people's answers.
    note: how this table differs from the paper's.
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
    """All tables of a paper, with the systems and test sets that they share."""

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
    """Returns the tables for names such as ``2:5``, ``3:1-5``, ``1:F4`` or ``4`` (all of paper 4), in order. Default:
    all.

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
