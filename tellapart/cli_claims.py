"""``tellapart claims``: the papers' findings, replayed."""

from __future__ import annotations

from typing import Annotated

import typer

from tellapart.cli_show import Json, show
from tellapart.errors import UsageError

app = typer.Typer()


@app.command()
def claims(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Which claims. Default: all.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One verdict seed, intervals over pictures alone.")] = False,
    seeds: Annotated[
        str | None, typer.Option(help="verdict (10-12, the default) or dev (0-2, for choosing settings).")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show what is claimed, and run nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Replay what the papers found in the embedded world. The same command goes on after Ctrl-C."""
    from tellapart.claims import all_claims, run_claims
    from tellapart.claims.page import listing, table
    from tellapart.claims.replay import chosen

    if quick and seeds is not None:
        raise UsageError("--quick is one verdict seed, so --seeds has no effect; leave one of them out")
    if listed:
        some = chosen(ids or (), all_claims())
        value = [{"id": c.id, "paper": c.number, "place": c.place, "says": c.says, "pending": c.pending} for c in some]
        show({"claims": value}, listing(some), as_json)
        return
    outcomes = run_claims(ids or (), "quick" if quick else seeds or "verdict")
    show({"claims": [outcome.to_json() for outcome in outcomes]}, table(outcomes), as_json)
