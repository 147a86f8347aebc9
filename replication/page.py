"""Shows the claims' results as a table in the terminal and as a self-contained HTML page."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from replication import all_claims
from replication.bootstrap import PartResult
from replication.claim import Claim, Part
from replication.examples import as_png
from replication.measures import MEASURES
from replication.plot import PartPlot, plot_part
from replication.replay import ClaimResult, Corrected, format_interval
from replication.seeds import Seeds
from replication.stamp import read_verdicts
from replication.verdict import RECORDS, VERDICT_FILE, history, outcomes
from tellapart.report.album import Album
from tellapart.report.marked_text import Piece, pieces
from tellapart.training.run_files import write_text

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

LONGEST_NAME = 60  # maximum number of characters of ids in a file name


def verdict_text(outcome: str) -> str:
    """Returns an outcome's label (see `replication.claim.outcome`)."""
    return {"fails": "does not hold", "not worse": "holds as not worse only"}.get(outcome, outcome)


def control_text(result: ClaimResult) -> str:
    if result.control_false is None:
        return ""
    return "came out false" if result.control_false else "came out TRUE"


def format_seconds(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def summary(results: Sequence[ClaimResult]) -> str:
    """Returns one sentence that says how many claims hold."""
    run = [result for result in results if result.holds is not None]
    pending = len(results) - len(run)
    text = f"{sum(bool(result.holds) for result in run)} of {len(run)} claims hold"
    if not_worse := sum(result.outcome == "not worse" for result in run):
        text += f", {not_worse} {'is' if not_worse == 1 else 'are'} not worse"
    text += f", {pending} {'is' if pending == 1 else 'are'} pending" if pending else ""
    return f"{text}; {format_seconds(sum(result.seconds for result in results))}"


def results_table(results: Sequence[ClaimResult]) -> Table:
    """Returns the table for the terminal: one row per claim, with one line per part."""
    from rich.table import Table

    shown = Table(title=summary(results))
    for name in ("claim", "verdict", "paper", "ours", "control", "time"):
        shown.add_column(name)
    for result in results:
        ours = "\n".join(_part_line(result, n) for n in range(len(result.parts))) or result.summary()
        shown.add_row(
            result.claim.id,
            verdict_text(result.outcome),
            result.claim.paper_result,
            ours,
            control_text(result),
            format_seconds(result.seconds) if result.seeds else "",
            end_section=True,
        )
    return shown


def verdict_table(found: Mapping[str, Any], claims: Sequence[Claim] | None = None, records: Path = RECORDS) -> Group:
    """Returns a stored verdict on these claims (default: the 28) for the terminal, with stamp and earlier verdicts."""
    from rich.console import Group
    from rich.table import Table

    by_id = outcomes(found, claims or all_claims())
    count = Counter(by_id.values())
    shown = Table(title=f"{count['holds']} of {len(by_id)} claims hold, {count['not worse']} are not worse")
    for name in ("claim", "verdict", "ours"):
        shown.add_column(name)
    for claim in found["claims"]:
        shown.add_row(claim["id"], verdict_text(by_id[claim["id"]]), claim["ours"], end_section=True)
    return Group(shown, *history(read_verdicts(records / VERDICT_FILE)))


def _part_line(result: ClaimResult, n: int) -> str:
    part = result.parts[n]
    return f"{'✓' if part.holds else '✗'} {part.statement}: {format_interval(part)} ({result.arm_values(n)})"


def claims_table(claims: Sequence[Claim]) -> Table:
    """Returns the table of ``--list``: the claims and their sources."""
    from rich.table import Table

    shown = Table(title=f"{len(claims)} claims")
    for name in ("claim", "paper", "says"):
        shown.add_column(name)
    for claim in claims:
        pending = f" (pending: {claim.pending})" if claim.pending else ""
        shown.add_row(claim.id, f"{claim.paper_number}, {claim.location}", claim.statement + pending)
    return shown


def page_path(folder: Path, seeds: str, ids: Sequence[str]) -> Path:
    """Returns the path of the page for these claims (all if empty). A run of only some claims has its own page."""
    name = "+".join(ids)
    if len(name) > LONGEST_NAME:
        name = f"{ids[0]}+{len(ids) - 1}-more-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return folder / ("-".join(filter(None, ("claims", seeds, name))) + ".html")


def write_page(
    results: Sequence[ClaimResult],
    seeds: Seeds,
    path: Path,
    total: int,
    selected: Sequence[str] = (),
    power: Mapping[str, float] = MappingProxyType({}),
) -> Path:
    """Writes the page atomically and returns its path.

    The path is ``path``, unless a finished earlier run left a page there with claims that ``results`` lacks; then it is
    ``….partial.html`` next to it. Raises `TellapartError` if it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.html")
    missing = ids_on_page(path) - {result.claim.id for result in results}
    written = partial if missing else path
    write_text(written, render(results, seeds, total, selected, power))
    if not missing:
        partial.unlink(missing_ok=True)
    return written


def ids_on_page(page: Path) -> set[str]:
    """Returns the ids of the claims on a page, or an empty set if there is no page."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    return set(re.findall(r'<section id="([^"]+)"', text))


def command(seeds: Seeds, selected: Sequence[str]) -> str:
    """Returns the command that reproduces the page."""
    options = ["--quick"] if seeds.kind == "quick" else ["--seeds", seeds.option]
    return shlex.join(["python", "-m", "replication", "claims", *selected, *options])


def coverage(results: Sequence[ClaimResult], total: int, selected: Sequence[str]) -> str:
    """Returns text that names the claims on the page, or "" if the page contains all ``total`` claims."""
    if len(results) == total:
        return ""
    ids = ", ".join(result.claim.id for result in results)
    text = f"This page holds {len(results)} of the {total} claims: {ids}."
    if len(results) < (wanted := len(selected) or total):
        text += f" {wanted} were asked for: the run is in progress or was stopped; the same command continues it."
    return text


def measure_label(name: str) -> str:
    """Returns a measure's label with an arrow for its direction, e.g. "CIDEr ↑"."""
    if name not in MEASURES:
        return name
    entry = MEASURES[name]
    arrow = {"higher": " ↑", "lower": " ↓", None: ""}[entry.direction]
    return f"{entry.title}{arrow}"


PAPERS = {
    1: "SMILE (Yue et al. 2023)",
    2: "No Detail Left Behind (Gaur et al. 2024)",
    3: "DiscriTune (Dessì et al. 2023)",
    4: "Sequence-level exploration (Chen and Jin 2020)",
}


@dataclass(frozen=True)
class PartView:
    """A part as shown on the page. The figures, the paper's and ours, are those of the part's measurements."""

    part: Part
    result: PartResult
    corrected: Corrected
    control: PartResult | None
    plot: PartPlot | None
    ours: str

    @property
    def test(self) -> str:
        return "two one-sided tests" if self.part.equivalence else "one-sided"


@dataclass(frozen=True)
class ExampleView:
    """A picture and its captions, with false words marked. ``symbol``: the picture's id on the page."""

    id: str
    symbol: str
    captions: tuple[tuple[str, tuple[Piece, ...]], ...]


@dataclass(frozen=True)
class ClaimView:
    """A claim as shown on the page."""

    result: ClaimResult
    parts: tuple[PartView, ...]
    examples: tuple[ExampleView, ...]


def view_claim(result: ClaimResult, album: Album) -> ClaimView:
    """Returns the claim with its plots, after adding its pictures to the album."""
    controls: Sequence[PartResult | None] = result.control or [None] * len(result.parts)
    rows = zip(result.claim.parts, result.parts, result.corrected(), controls, strict=True) if result.parts else ()
    parts = tuple(
        PartView(part, found, corrected, control, plot_part(part, found, corrected, control), result.arm_values(n))
        for n, (part, found, corrected, control) in enumerate(rows)
    )
    examples = tuple(
        ExampleView(
            one.id,
            album.add_content(as_png(one.picture)),
            tuple((said.arm, pieces(said.caption, said.false)) for said in one.captions),
        )
        for one in result.examples
    )
    return ClaimView(result, parts, examples)


def by_paper(views: Sequence[ClaimView]) -> list[tuple[int, str, list[ClaimView]]]:
    """Groups claims by paper, as (number, name, claims)."""
    found: dict[int, list[ClaimView]] = {}
    for view in views:
        found.setdefault(view.result.claim.paper_number, []).append(view)
    return [(number, PAPERS.get(number, ""), found[number]) for number in sorted(found)]


def render(
    results: Sequence[ClaimResult],
    seeds: Seeds,
    total: int,
    selected: Sequence[str] = (),
    power: Mapping[str, float] = MappingProxyType({}),
    records: Path = RECORDS,
) -> str:
    """Renders the page as HTML, in the style of the report. selected: the ids that the user named; none means all
    ``total``.

    power: the power of claims by id (see `replication.verdict.power_of_claims`).
    """
    from tellapart.report.template import template

    album = Album()
    views = [view_claim(result, album) for result in results]
    return template(Path(__file__).parent / "claims.html").render(
        papers=by_paper(views),
        sprites=album.sprites(),
        summary=summary(results),
        coverage=coverage(results, total, selected),
        seeds=", ".join(map(str, seeds.numbers)),
        kind=seeds.kind,
        history=history(read_verdicts(records / VERDICT_FILE)),
        power=power,
        verdict_text=verdict_text,
        control_text=control_text,
        format_seconds=format_seconds,
        format_interval=format_interval,
        measure_label=measure_label,
        command=command(seeds, selected),
    )
