"""Outcomes for people: a table in the terminal, and one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tellapart.claims.claim import Claim
from tellapart.claims.replay import SEEDS, Outcome, figure
from tellapart.training.run_folder import write_text

if TYPE_CHECKING:
    from rich.table import Table


def word(holds: bool | None) -> str:
    return "pending" if holds is None else "holds" if holds else "does not hold"


def control_word(outcome: Outcome) -> str:
    if outcome.control_false is None:
        return ""
    return "came out false" if outcome.control_false else "came out TRUE"


def clock(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many hold, in one sentence."""
    run = [outcome for outcome in outcomes if outcome.holds is not None]
    pending = len(outcomes) - len(run)
    told = f"{sum(bool(o.holds) for o in run)} of {len(run)} claims hold"
    told += f", {pending} {'is' if pending == 1 else 'are'} pending" if pending else ""
    return f"{told}; {clock(sum(o.seconds for o in outcomes))}"


def table(outcomes: Sequence[Outcome]) -> Table:
    from rich.table import Table

    shown = Table(title=summary(outcomes))
    for name in ("claim", "verdict", "paper", "ours", "control", "time"):
        shown.add_column(name)
    for o in outcomes:
        ours = "\n".join(_line(o, place) for place in range(len(o.parts))) or o.ours()
        spent = clock(o.seconds) if o.seeds else ""
        shown.add_row(o.claim.id, word(o.holds), o.claim.paper, ours, control_word(o), spent, end_section=True)
    return shown


def _line(outcome: Outcome, place: int) -> str:
    part = outcome.parts[place]
    return f"{'✓' if part.holds else '✗'} {part.says}: {figure(part)} ({outcome.numbers(place)})"


def listing(claims: Sequence[Claim]) -> Table:
    """``--list``: what is claimed, and where."""
    from rich.table import Table

    shown = Table(title=f"{len(claims)} claims")
    for name in ("claim", "paper", "says"):
        shown.add_column(name)
    for c in claims:
        shown.add_row(c.id, f"{c.number}, {c.place}", c.says + (f" (pending: {c.pending})" if c.pending else ""))
    return shown


def write_page(outcomes: Sequence[Outcome], seeds: str, path: Path) -> None:
    """The page at ``path``, whole or not at all. Raises `TellapartError` where it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, render(outcomes, seeds))


def render(outcomes: Sequence[Outcome], seeds: str) -> str:
    """The page as text; its look is the report's."""
    from tellapart.report.page import template

    return template(Path(__file__).parent / "claims.html").render(
        outcomes=outcomes,
        summary=summary(outcomes),
        seeds=", ".join(map(str, SEEDS[seeds])),
        kind=seeds,
        word=word,
        control_word=control_word,
        clock=clock,
        figure=figure,
    )
