"""Outcomes for people: a table in the terminal, and one HTML page that needs nothing else."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tellapart.claims.claim import Claim
from tellapart.claims.replay import SEEDS, Outcome, figure
from tellapart.training.run_folder import write_text

if TYPE_CHECKING:
    from rich.table import Table

LONGEST_NAME = 60  # characters of ids in a file's name


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


def page_of(folder: Path, seeds: str, ids: Sequence[str]) -> Path:
    """The page of a run of these claims (none: all). A run of some has a page of its own."""
    name = "+".join(ids)
    if len(name) > LONGEST_NAME:
        name = f"{ids[0]}+{len(ids) - 1}-more-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return folder / ("-".join(filter(None, ("claims", seeds, name))) + ".html")


def write_page(outcomes: Sequence[Outcome], seeds: str, path: Path, known: int, asked: Sequence[str] = ()) -> Path:
    """Write the page, whole or not at all, and return where it lies.

    That is ``path``, but where a page lies there already that holds claims which ``outcomes`` has not (an earlier run
    was finished, this one is not yet): then it is ``….partial.html`` beside it. Raises `TellapartError` where it cannot
    be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.html")
    lost = claims_on(path) - {outcome.claim.id for outcome in outcomes}
    written = partial if lost else path
    write_text(written, render(outcomes, seeds, known, asked))
    if not lost:
        partial.unlink(missing_ok=True)
    return written


def claims_on(page: Path) -> set[str]:
    """The ids of the claims that a page holds; none where there is no page."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    return set(re.findall(r'<section id="([^"]+)"', text))


def command(seeds: str, asked: Sequence[str]) -> str:
    """What makes the page again."""
    options = {"verdict": [], "quick": ["--quick"], "dev": ["--seeds", "dev"]}[seeds]
    return shlex.join(["tellapart", "claims", *asked, *options])


def held(outcomes: Sequence[Outcome], known: int, asked: Sequence[str]) -> str:
    """What the page holds where that is not every claim; empty where it is."""
    if len(outcomes) == known:
        return ""
    wanted = len(asked) or known
    told = f"This page holds {len(outcomes)} of the {known} claims: {', '.join(o.claim.id for o in outcomes)}."
    if len(outcomes) < wanted:
        told += f" {wanted} were asked for: the run goes on, or was ended; the same command goes on."
    return told


def render(outcomes: Sequence[Outcome], seeds: str, known: int, asked: Sequence[str] = ()) -> str:
    """The page as text; its look is the report's. ``asked``: the ids that were typed, none for all ``known`` claims."""
    from tellapart.report.page import template

    return template(Path(__file__).parent / "claims.html").render(
        outcomes=outcomes,
        summary=summary(outcomes),
        held=held(outcomes, known, asked),
        seeds=", ".join(map(str, SEEDS[seeds])),
        kind=seeds,
        word=word,
        control_word=control_word,
        clock=clock,
        figure=figure,
        command=command(seeds, asked),
    )
