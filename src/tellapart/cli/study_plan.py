"""``tellapart study plan``: simulates how many participants and items a study needs, and its cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import rich.table
import typer

from tellapart.cli.options import Count, Json
from tellapart.cli.output import show
from tellapart.errors import UsageError
from tellapart.study.power import Assumptions, PlannedDesign, cheapest, planned_designs
from tellapart.utils.comma_lists import comma_list
from tellapart.utils.tables import table_of


def plan(
    kind: str,
    difference: Annotated[float, typer.Option()],
    base: float | None = None,
    agreement: Annotated[float, typer.Option(min=0, max=0.99)] = 0.3,
    systems: Annotated[int, typer.Option(min=2)] = 3,
    items: str | None = None,
    raters: str | None = None,
    block: Count = 100,
    pay: Annotated[float, typer.Option(min=0)] = 0.0,
    fee: Annotated[float, typer.Option(min=0)] = 0.0,
    power: Annotated[float, typer.Option(min=0.01, max=0.999)] = 0.8,
    budget: Annotated[float | None, typer.Option(min=0)] = None,
    studies: Annotated[int, typer.Option(min=20)] = 200,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Simulate how many participants and items are needed to detect a difference, and at what cost.

    Args:
        kind: Kind of study: pick, rate or compare.
        difference: Difference to detect: 0.05 is five percentage points (rate: points on the 5-point scale).
        base: Score of the lower-scoring system. Default: 0.4 for pick, 3.5 for rate.
        agreement: Agreement between two participants (Krippendorff's alpha).
        systems: Number of systems, including human captions.
        items: Comma-separated numbers of sets or pictures. Default: 100,200,500.
        raters: Comma-separated numbers of participants per block. Default: 1,2,3,5,8.
        block: Items per participant.
        pay: Payment per participant.
        fee: Platform fee as a fraction of the payment, such as 0.33.
        power: Target power.
        budget: Maximum cost.
        studies: Number of simulated studies per design.
        seed: Random seed for the simulation.
    """
    if budget is not None and not pay:
        raise UsageError("--budget requires --pay, the payment per participant; add it")
    if kind == "compare" and base is not None:
        raise UsageError("--base cannot be combined with compare, where equal systems score 0.5; remove it")
    default = {"pick": 0.4, "rate": 3.5, "compare": 0.5}.get(kind, 0.5)
    assumed = Assumptions(kind, default if base is None else base, difference, agreement, systems, block, pay, fee)
    sizes, each = numbers("--items", items or "100,200,500"), numbers("--raters", raters or "1,2,3,5,8")
    rows = planned_designs(assumed, sizes, each, studies=studies, seed=seed)
    best = cheapest(rows, power, budget)
    show(
        {"assumptions": asdict(assumed), "rows": [asdict(row) for row in rows], "cheapest": best and asdict(best)},
        lambda: plan_table(rows, best, power),
        as_json,
    )


def numbers(option: str, text: str) -> list[int]:
    """Parses comma-separated integers of at least 1."""
    try:
        found = list(map(int, comma_list(text)))
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise UsageError(f"{option} {text}: expected integers separated by commas, such as 100,200")
    return found


def plan_table(rows: list[PlannedDesign], best: PlannedDesign | None, power: float) -> rich.table.Table:
    """Returns a table of the designs, cheapest first."""
    title = (
        f"the first design with a power of {100 * power:g}% is marked"
        if best
        else f"no design has a power of {100 * power:g}%"
    )
    heads = ("", "items", "raters per block", "participants", "answers", "cost", "power")
    cells = [
        ("→" if row is best else "", f"{row.items:,}", str(row.raters), f"{row.participants:,}", f"{row.answers:,}",
         f"{row.cost:,.2f}" if row.cost else "–", f"{100 * row.power:.0f}%")
        for row in rows
    ]  # fmt: skip
    return table_of(heads, cells, f"Designs, cheapest first; {title}")
