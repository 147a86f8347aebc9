"""The papers' tables: their systems, test sets and metrics, and the published figures.

There is one TOML file per paper in ``shipped/tables``. For each system and column, it also names the experimental
condition and the measure that correspond to it on `scenes`. `recipe.table_plan` plans the commands that reproduce a
table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from tellapart.errors import UsageError, nearest
from tellapart.recipe.mistakes import explain
from tellapart.recipe.schema import TestSet
from tellapart.recipe.shipped_recipes import SHIPPED
from tellapart.utils.option_tables import Strict

PAPERS = (1, 2, 3, 4)
SOURCES = ("metric", "words", "setting", "log", "study", "command")


class Column(Strict):
    """A column in a table. Its cells usually show a metric on a test set.

    metric: the name of a metric in ``eval``.
    words: "adjective" or "noun", to show each system's most distinctive words of this kind instead of a figure.
    setting: a key in the row's recipe, or several keys joined by ``*`` for the product of their values.
    log: name of a value that training logs at each validation.
    study: name of a figure from the table's human study.
    command: arguments of a command whose output file is the cell. ``{model}``, ``{data}``, ``{llm}`` and ``{mllm}``
        stand for the row's captioner, the test set, and the options --llm and --mllm.
    file: name of the command's output file.
    scenes: the measure that corresponds to the column on `scenes`.
    note: why the column cannot be measured here, if none of the fields above is set.
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
        """Returns True if ``eval`` measures the column."""
        return bool(self.metric or self.words)

    @property
    def source(self) -> str:
        """Returns the name of the field that defines the cells, or "" if no such field is set."""
        return next((name for name in SOURCES if getattr(self, name)), "")


class Row(Strict):
    """A row in a table: its labels, its system, and the published cells (a figure, words, or "" for an empty cell).

    instead: test sets to use for this row instead of the columns' test sets, e.g. with other references.
    """

    labels: tuple[str, ...]
    system: str
    paper: tuple[float | str, ...]
    instead: dict[str, str] = Field(default_factory=dict)


class System(Strict):
    """The source of a row's captions: exactly one of ``recipe``, ``run``, ``model``, ``human`` and ``file``.

    recipe, set: a recipe to train, and overrides as in ``--set``.
    start: the system whose model is the starting point for training.
    until: the system whose run determines the value at which training stops (``validation.until``).
    run: the system whose model is used with other ``caption`` options. "3:NAME" names a system in another paper.
    model: the name of a captioner.
    human: how to use references as captions, as in ``eval --human``.
    file: description of a captioner or captions that the user must provide.
    caption: command-line arguments for ``tellapart caption``.
    scenes: the experimental condition that corresponds to the system on `scenes`.
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
    """A table or figure from a paper.

    id: "5" for a table, "F3" for a figure, or "S1" for a sweep that the text describes.
    study: arguments of ``study create``, for columns that report people's answers.
    note: how our table differs from the paper's.
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
    table = tomllib.loads((SHIPPED / "tables" / f"paper{number}.toml").read_text(encoding="utf-8"))
    try:
        return Paper.model_validate(table)
    except ValidationError as error:
        raise UsageError(f"tables/paper{number}.toml: {explain(error, Paper)}") from None


def find_tables(names: Sequence[str]) -> list[tuple[Paper, PaperTable]]:
    """Returns the tables for names such as ``2:5``, ``3:1-5``, ``1:F4`` or ``4`` (all of paper 4), in order.

    If there are no names, returns all tables. Raises `UsageError` for a malformed name, an unknown paper or an unknown
    table.
    """
    tables: dict[tuple[int, str], tuple[Paper, PaperTable]] = {}
    for name in names or list(map(str, PAPERS)):
        number, colon, ids = name.partition(":")
        if number not in map(str, PAPERS) or (colon and not ids):
            raise UsageError(
                f"'{name}' is not a table; expected PAPER:TABLE, such as 2:5, 3:1-5, 1:F4, or 4 (all of paper 4)"
            )
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
                f"'{name}': cannot parse '{part}'; expected a table such as 5, a figure such as F3, or a range such as "
                "1-5"
            )
        yield from (f"{letter}{number}" for number in range(int(start), int(stop) + 1))
