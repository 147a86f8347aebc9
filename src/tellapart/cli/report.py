"""``tellapart report``: the HTML page of one or more runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.common import MEASURING, App
from tellapart.utils.text import for_terminal

app = App()


@app.command(rich_help_panel=MEASURING)
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Default: RUN/report.html.", dir_okay=False)] = None,
) -> None:
    """Write the HTML page of one run, or of several side by side."""
    from tellapart.evaluation.selection import describe
    from tellapart.report import build_report

    print(for_terminal(str(build_report(runs, out, describe=describe))))
