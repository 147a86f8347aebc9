"""``tellapart review``: serves a local page on which to browse and correct the captions of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.app import MEASURING, App
from tellapart.cli.options import Device
from tellapart.errors import UsageError, need_extra

app = App()


@app.command(rich_help_panel=MEASURING)
def review(
    folder: Annotated[str, typer.Argument(help="Folder of pictures, or a data set as kind:path?key=value.")],
    captions: Annotated[
        Path | None,
        typer.Argument(
            help="Caption file, or a suffix: .txt, .xmp. Default: the .txt or .caption files in the folder, otherwise "
            "captions.jsonl, captions.csv or metadata.jsonl there, otherwise new .txt files."
        ),
    ] = None,
    scorer: Annotated[
        str | None, typer.Option(help="Scorer that finds captions that also fit other pictures: folder or hub name.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Captioner to rewrite captions that also fit other pictures (requires --scorer)."),
    ] = None,
    device: Device = "auto",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on the loopback address; 0 picks a free one.")
    ] = 8765,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Review captions on a local page: filter, edit, accept, find and replace. Saves edits immediately."""
    need_extra("review", "the review page", "starlette", "uvicorn")
    if model is not None and scorer is None:
        raise UsageError("--model requires --scorer, which finds the captions to rewrite; add --scorer MODEL")
    if device != "auto" and scorer is None:
        raise UsageError("--device requires --scorer or --model; add one, or remove --device")
    from tellapart.review.start import open_session, serve_review

    serve_review(open_session(folder, captions, scorer, model, device), port, open_page)
