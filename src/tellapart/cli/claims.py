"""``tellapart claims``: the papers' findings, replicated; ``tellapart tables``: the tables of paper 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tellapart.cli.common import RESEARCH, App
from tellapart.cli.devices import Device, RecipePrecision, precision_settings
from tellapart.cli.output import Json, show
from tellapart.errors import UsageError

if TYPE_CHECKING:
    from tellapart.claims.seeds import Seeds
    from tellapart.claims.tables import MeasuredTable

app = App()


@app.command(rich_help_panel=RESEARCH)
def claims(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Which claims. Default: all.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One development seed, intervals over pictures only.")] = False,
    seeds: Annotated[
        str | None,
        typer.Option(help="dev (0-5, the default), verdict (20-24: once, stamped), or numbers: 100,101 to check them."),
    ] = None,
    power: Annotated[
        bool, typer.Option("--power", help="How probably each claim is found where it is true, from trained dev seeds.")
    ] = False,
    further: Annotated[
        bool, typer.Option("--further", help="The findings beside the 28, which no verdict counts.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the claims without running them.")] = False,
    device: Device = "auto",
    precision: RecipePrecision = "auto",
    as_json: Json = False,
) -> None:
    """Replicate the papers' findings in the embedded world. After Ctrl-C, the same command goes on."""
    from tellapart.claims import find_claims, run_claims
    from tellapart.claims.page import claims_table, results_table
    from tellapart.claims.seeds import parse_seeds
    from tellapart.models.device import running_on

    if quick and seeds is not None:
        raise UsageError("--quick is one development seed, so --seeds has no effect; leave one of them out")
    if ids and further:
        raise UsageError(
            "--further is about all findings beside the 28, so names have no effect; leave one of them out"
        )
    some = find_claims(ids or (), further)
    ids = [claim.id for claim in some] if further else ids
    if listed:
        value = [
            {"id": c.id, "paper": c.paper_number, "place": c.location, "says": c.statement, "pending": c.pending}
            for c in some
        ]
        show({"claims": value}, lambda: claims_table(some), as_json)
        return
    chosen = parse_seeds("quick" if quick else seeds or "dev", "claims")
    settings = precision_settings(precision)
    with running_on(device):
        if power:
            show_power(ids or (), chosen, settings, as_json)
        elif chosen.kind == "verdict":
            show_verdict(ids or (), settings, as_json)
        else:
            results = run_claims(ids or (), chosen.option, settings=settings)
            show({"claims": [result.to_json() for result in results]}, lambda: results_table(results), as_json)


def show_power(ids: Sequence[str], seeds: Seeds, settings: Sequence[str], as_json: bool) -> None:
    from tellapart.claims import run_power
    from tellapart.claims.power import power_table

    if seeds.kind == "verdict":
        raise UsageError("--power is computed before a verdict, from development seeds; type: --power --seeds dev")
    found, record = run_power(ids, seeds.option, settings=settings)
    show(record, lambda: power_table(found), as_json)


def show_verdict(ids: Sequence[str], settings: Sequence[str], as_json: bool) -> None:
    from tellapart.claims import run_verdict
    from tellapart.claims.page import verdict_table

    if ids:
        raise UsageError("a verdict is about all claims; leave the names out")
    found = run_verdict(settings=settings)
    show(found, lambda: verdict_table(found), as_json)


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
    """Run paper 2 in the embedded world, from boosted captions to its tables, beside the paper's figures.

    Models that an earlier command trained are reused. After Ctrl-C, the same command goes on.
    """
    from tellapart.claims import cores
    from tellapart.claims.seeds import parse_seeds
    from tellapart.claims.tables import run_tables
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
