"""``tellapart report``: writes an HTML page about one or more runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.app import MEASURING, App
from tellapart.cli.report_changes import changes
from tellapart.cli.report_tokens import tokens
from tellapart.report import build_report
from tellapart.utils.terminal_text import for_terminal
from tellapart.utils.write_errors import stdout_errors

app = App()


@app.command(rich_help_panel=MEASURING)
def report(
    runs: list[Path],
    out: Annotated[Path | None, typer.Option("--out", "-o", dir_okay=False)] = None,
) -> None:
    """Write an HTML page about one run, or about several runs side by side.

    Args:
        runs: Run folders.
        out: Output page. Default: RUN/report.html.
    """
    page = build_report(runs, out)
    with stdout_errors():
        print(for_terminal(str(page)))


app.command("report changes", hidden=True)(changes)
app.command("report tokens", hidden=True)(tokens)
