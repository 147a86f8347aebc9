"""Formats tables for the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text


def table_of(heads: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> Table:
    """Returns a table for the terminal. Right-aligns columns of numbers. Text is not parsed as markup."""
    rows = [*map(list, rows)]
    table = Table(box=box.SIMPLE_HEAD, title=title and Text(title), title_justify="left")
    for column, head in enumerate(heads):
        numeric = rows and all(re.match(r"[+\-−–]?\d|–?$", row[column]) for row in rows)
        table.add_column(head, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
