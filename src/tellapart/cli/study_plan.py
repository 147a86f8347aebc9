"""``tellapart study plan``: what a difference takes in people, items and money."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tellapart.cli.common import App
from tellapart.cli.output import Json, show
from tellapart.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from tellapart.study.plan import Row

app = App()


@app.command()
def plan(
    kind: Annotated[str, typer.Argument(help="pick, rate or compare.")],
    difference: Annotated[
        float, typer.Option(help="The difference to find: 0.05 is five points; of rate, points of 5.")
    ],
    base: Annotated[
        float | None,
        typer.Option(help="The lower system's value, not of compare. Default: pick 0.4 (paper 3), rate 3.5."),
    ] = None,
    agreement: Annotated[float, typer.Option(help="Of two people on one item (Krippendorff's alpha).")] = 0.3,
    systems: Annotated[int, typer.Option(min=2, help="Systems, people included.")] = 3,
    items: Annotated[str | None, typer.Option(help="Sets or pictures, with commas. Default: 100,200,500.")] = None,
    raters: Annotated[
        str | None, typer.Option(help="Participants for each block, with commas. Default: 1,2,3,5,8.")
    ] = None,
    block: Annotated[int, typer.Option(min=1, help="Items that one participant answers.")] = 100,
    pay: Annotated[float, typer.Option(min=0, help="What one participant is paid (paper 3: 13.5 dollars).")] = 0.0,
    fee: Annotated[float, typer.Option(min=0, help="The platform's fee as a share of the pay, such as 0.33.")] = 0.0,
    power: Annotated[float, typer.Option(min=0.01, max=0.999, help="The power that is wanted.")] = 0.8,
    budget: Annotated[float | None, typer.Option(min=0, help="At most this much money.")] = None,
    studies: Annotated[int, typer.Option(min=20, help="Simulated studies of each design.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the simulation.")] = 0,
    as_json: Json = False,
) -> None:
    """How many participants, items and how much money a difference takes: power by simulation."""
    from dataclasses import asdict

    from tellapart.study.plan import Assumptions, cheapest
    from tellapart.study.plan import plan as simulate_plans

    if budget is not None and not pay:
        raise UsageError("--budget needs what one participant is paid; add --pay")
    if kind == "compare" and base is not None:
        raise UsageError("--base has no effect on compare, where equal systems are at 0.5; leave it out")
    default = {"pick": 0.4, "rate": 3.5, "compare": 0.5}.get(kind, 0.5)
    assumed = Assumptions(kind, default if base is None else base, difference, agreement, systems, block, pay, fee)
    sizes, each = numbers("--items", items or "100,200,500"), numbers("--raters", raters or "1,2,3,5,8")
    rows = simulate_plans(assumed, sizes, each,
                          studies=studies, seed=seed)  # fmt: skip
    best = cheapest(rows, power, budget)
    show(
        {"assumptions": asdict(assumed), "rows": [asdict(row) for row in rows], "cheapest": best and asdict(best)},
        lambda: plan_table(rows, best, power),
        as_json,
    )


def numbers(option: str, text: str) -> list[int]:
    """Whole numbers from 1 on, with commas."""
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise UsageError(f"{option} {text}: expected whole numbers with commas, such as 100,200")
    return found


def plan_table(rows: list[Row], best: Row | None, power: float) -> Table:
    """The designs, the cheapest first."""
    from rich import box
    from rich.table import Table

    title = (
        f"the first with a power of {100 * power:g} % is marked" if best else f"none has a power of {100 * power:g} %"
    )
    table = Table(box=box.SIMPLE_HEAD, title=f"Designs, the cheapest first; {title}", title_justify="left")
    for head in ("", "items", "raters of a block", "participants", "answers", "cost", "power"):
        table.add_column(head, justify="right")
    for row in rows:
        cost = f"{row.cost:,.2f}" if row.cost else "–"
        table.add_row("→" if row is best else "", f"{row.items:,}", str(row.raters), f"{row.participants:,}",
                      f"{row.answers:,}", cost, f"{100 * row.power:.0f} %")  # fmt: skip
    return table
