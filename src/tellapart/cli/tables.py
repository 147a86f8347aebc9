"""``tellapart tables``: the tables of paper 2 on `scenes`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tellapart.cli.common import RESEARCH, App, Device, Json, RecipePrecision, precision_settings, show
from tellapart.errors import TellapartError

if TYPE_CHECKING:
    from replication.tables import MeasuredTable

app = App()


@app.command(rich_help_panel=RESEARCH)
def tables(
    numbers: Annotated[
        list[int] | None, typer.Argument(metavar="[2|3|5|7]...", help="Which tables. Default: all four.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="quick (0), dev (0-5), or numbers: 0,1.")] = "quick",
    device: Device = "auto",
    precision: RecipePrecision = "auto",
    as_json: Json = False,
) -> None:
    """Run paper 2 in the synthetic world, from boosted captions to its tables, beside the paper's figures.

    Models that an earlier command trained are reused. After Ctrl-C, the same command goes on.
    """
    _find_replication()
    from replication import cores
    from replication.seeds import parse_seeds
    from replication.tables import run_tables
    from tellapart.models.device import running_on

    chosen = parse_seeds(seeds, "tables").numbers
    with running_on(device):
        measured = run_tables(numbers or (), chosen, workers=cores(), settings=precision_settings(precision))
    show_tables(measured, as_json)


def show_tables(measured: list[MeasuredTable], as_json: bool) -> None:
    from rich.console import Group

    show(
        {"tables": [table.to_json() for table in measured]},
        lambda: Group(*(table.to_rich() for table in measured)),
        as_json,
    )


def _find_replication() -> None:
    """Put the clone's top on the path, where ``replication`` lies. Raises `TellapartError` outside a clone."""
    if importlib.util.find_spec("replication") is None:
        sys.path.append(str(Path(__file__).parents[3]))
    if importlib.util.find_spec("replication") is None:
        raise TellapartError("tables on scenes need replication/ of a clone; type there: pip install -e .")
