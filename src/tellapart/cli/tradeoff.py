"""``tellapart tradeoff``: detail and truth at once, measured on the embedded world."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellapart.cli.common import RESEARCH, App
from tellapart.cli.output import Json, show
from tellapart.errors import UsageError, nearest

if TYPE_CHECKING:
    from rich.console import Group

app = App()


@app.command(rich_help_panel=RESEARCH)
def tradeoff(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[ARM]...", help="Which arms. Default: a verdict's.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="quick (0), dev (0-5), verdict (30-34, once), or numbers: 0,1.")] = "quick",
    start: Annotated[str, typer.Option(help="The captioner that all arms start from.")] = "scenes",
    steps: Annotated[int, typer.Option(min=1, help="Training steps of every arm.")] = 70,
    svg: Annotated[Path | None, typer.Option(help="Draw R@1 against hallucination into this file.")] = None,
    as_json: Json = False,
) -> None:
    """Compare truthful-self-retrieval with self-retrieval, controls and the exact truth. Resumes after Ctrl-C."""
    from tellapart.claims import cores
    from tellapart.claims.seeds import parse_seeds
    from tellapart.claims.tradeoff import run_tradeoff, verdict
    from tellapart.claims.tradeoff_arms import DECODED_OTHERWISE, arms

    known = [*arms(start, steps), *DECODED_OTHERWISE]
    for name in names or ():
        if name not in known:
            raise UsageError(f"no arm is called '{name}'{nearest(name, known)}")
    if svg is not None and not svg.parent.is_dir():
        raise UsageError(f"--svg is {svg}, and there is no folder {svg.parent}; make it, or name another file")
    chosen = parse_seeds(seeds, "tradeoff")
    if chosen.kind == "verdict":
        if names:
            raise UsageError("a verdict is about all arms; leave the names out")
        found = verdict(start=start, steps=steps, workers=cores())
    else:
        found = run_tradeoff(chosen.numbers, names or (), start=start, steps=steps, workers=cores()).to_json()
    if svg is not None:
        from tellapart.claims.front import front_svg
        from tellapart.utils.files import replace_text

        replace_text(svg, front_svg(found["systems"]))
    show(found, lambda: tables_of(found), as_json)


def tables_of(found: dict[str, Any]) -> Group:
    """The table of arms, the rule, and the stamp of a verdict."""
    from rich import box
    from rich.console import Group
    from rich.table import Table

    from tellapart.claims.stamp import stamp_line
    from tellapart.claims.tradeoff import format_cell, table_lines

    header, *rows = table_lines(found)
    table = Table(*header, box=box.SIMPLE_HEAD, title=f"seeds {', '.join(map(str, found['seeds']))}; 95 % intervals")
    for row in rows:
        table.add_row(*row)
    rule = Table("against self-retrieval", "difference", "holds", box=box.SIMPLE_HEAD)
    for part in found["parts"]:
        rule.add_row(part["says"], format_cell(part), "yes" if part["holds"] else "no")
    closed = {name: share for name, share in found["closed"].items() if share is not None}
    lines = [f"closed of the gap to the exact truth's reward, {name}: {100 * s:.0f} %" for name, s in closed.items()]
    if stamp := found["stamp"]:
        lines.append(stamp_line(stamp))
    return Group(table, *([rule] if found["parts"] else []), *lines)
