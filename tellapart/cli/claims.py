"""``tellapart claims``: the papers' findings, replicated; ``tellapart tables``: the tables of paper 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tellapart.cli.common import RESEARCH, App
from tellapart.cli.devices import Device, RecipePrecision, precision_settings
from tellapart.cli.output import Json, show
from tellapart.errors import UsageError

if TYPE_CHECKING:
    from tellapart.claims.tables import MeasuredTable

app = App()


@app.command(rich_help_panel=RESEARCH)
def claims(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Which claims. Default: all.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One verdict seed, intervals over pictures only.")] = False,
    seeds: Annotated[
        str | None, typer.Option(help="verdict (10-12, the default) or dev (0-2, for choosing settings).")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the claims without running them.")] = False,
    device: Device = "auto",
    precision: RecipePrecision = "auto",
    as_json: Json = False,
) -> None:
    """Replicate the papers' findings in the embedded world. After Ctrl-C, the same command goes on."""
    from tellapart.claims import all_claims, run_claims
    from tellapart.claims.page import claims_table, results_table
    from tellapart.claims.replay import select_claims
    from tellapart.models.device import running_on

    if quick and seeds is not None:
        raise UsageError("--quick is one verdict seed, so --seeds has no effect; leave one of them out")
    if listed:
        some = select_claims(ids or (), all_claims())
        value = [
            {"id": c.id, "paper": c.paper_number, "place": c.location, "says": c.statement, "pending": c.pending}
            for c in some
        ]
        show({"claims": value}, lambda: claims_table(some), as_json)
        return
    settings = precision_settings(precision)
    with running_on(device):
        results = run_claims(ids or (), "quick" if quick else seeds or "verdict", settings=settings)
    show({"claims": [result.to_json() for result in results]}, lambda: results_table(results), as_json)


@app.command(rich_help_panel=RESEARCH)
def tables(
    numbers: Annotated[
        list[int] | None, typer.Argument(metavar="[2|3|5|7]...", help="Which tables. Default: all four.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="quick (one verdict seed), verdict (10-12) or dev (0-2).")] = "quick",
    device: Device = "auto",
    precision: RecipePrecision = "auto",
    as_json: Json = False,
) -> None:
    """Run paper 2 in the embedded world, from boosted captions to its tables, beside the paper's figures.

    Models that an earlier command trained are reused. After Ctrl-C, the same command goes on.
    """
    from tellapart.claims import cores
    from tellapart.claims.replay import SEEDS
    from tellapart.claims.tables import run_tables
    from tellapart.errors import nearest
    from tellapart.models.device import running_on

    if seeds not in SEEDS:
        raise UsageError(f"no seeds are called '{seeds}'{nearest(seeds, SEEDS)}")
    with running_on(device):
        measured = run_tables(numbers or (), SEEDS[seeds], workers=cores(), settings=precision_settings(precision))
    show_tables(measured, as_json)


def show_tables(measured: list[MeasuredTable], as_json: bool) -> None:
    from rich.console import Group

    show(
        {"tables": [table.to_json() for table in measured]},
        lambda: Group(*(table.to_rich() for table in measured)),
        as_json,
    )
