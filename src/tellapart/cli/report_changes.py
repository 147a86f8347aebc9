"""``tellapart report changes``: compares two caption files picture by picture."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import rich.console
import typer

from tellapart.cli.options import Device, Json
from tellapart.cli.output import show
from tellapart.evaluation.changes import Changes
from tellapart.evaluation.changes_of_files import changes_of_files
from tellapart.utils.tables import table_of


def changes(
    before: Path,
    after: Path,
    data: Annotated[str, typer.Option()],
    references: Path | None = None,
    scorer: str | None = None,
    top: Annotated[int, typer.Option(min=1, metavar="N")] = 20,
    allow_missing: bool = False,
    as_json: Json = False,
    device: Device = "auto",
) -> None:
    """List captions whose CIDEr fell most (hallucinated, equal, better), and pictures that only AFTER identifies.

    Args:
        before: Captions of the old system, in any layout that eval reads.
        after: Captions of the new system, for the same pictures.
        data: Pictures with references or scenes, as kind:path?key=value.
        references: Reference captions, if the data contains none.
        scorer: Scorer, to find captions that only the new system gets right.
        top: Number of pictures to show per kind of decrease.
        allow_missing: Compare only the pictures that have a caption in both files.
    """
    found = changes_of_files(
        before, after, data, references, scorer=scorer, top=top, allow_missing=allow_missing, device=device
    )
    show(asdict(found), lambda: changes_tables(found), as_json)


def changes_tables(found: Changes) -> rich.console.Group:
    """Formats the decreases, and the captions that only the new system gets right, for the terminal."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.kinds.items())
    title = (
        f"CIDEr decreases on {found.fallen:,} of {found.pictures:,} pictures: {kinds}; the largest decreases of each "
        f"kind (according to {found.judged_by})"
    )
    rows = [
        (one.id, one.kind, *(f"{a:.0f} → {b:.0f}" for a, b in (one.cider, one.correct, one.false)), one.before,
         one.after)
        for one in found.falls
    ]  # fmt: skip
    falls = table_of(("picture", "kind", "CIDEr", "correct", "false", "before", "after"), rows, title)
    if not found.retrieval:
        return rich.console.Group(falls)
    who = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in found.retrieval.items())
    right = [(one.id, one.before, one.after) for one in found.only_after]
    only = table_of(("picture", "before", "after"), right, f"Only the new system is right ({who})")
    return rich.console.Group(falls, only)
