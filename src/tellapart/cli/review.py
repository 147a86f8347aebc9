"""``tellapart review``: look through the captions of a folder on a local page, and correct them."""

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
    folder: Annotated[str, typer.Argument(help="The folder of pictures, or a data set as kind:path?key=value.")],
    captions: Annotated[
        Path | None,
        typer.Argument(help="File of captions, or a suffix: .txt, .xmp. [default: what lies in the folder, else .txt]"),
    ] = None,
    scorer: Annotated[
        str | None, typer.Option(help="Scorer that finds the other pictures that a caption fits: folder or hub name.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Captioner for pictures whose captions collide. Requires --scorer.")
    ] = None,
    device: Device = "auto",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on the loopback address; 0: any.")] = 8765,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in this machine's browser.")] = False,
) -> None:
    """Review captions on a local page: filter, edit, accept, find and replace. Saves straight into the files."""
    need_extra("review", "the review page", "starlette", "uvicorn")
    if model is not None and scorer is None:
        raise UsageError("--model captions what a scorer confuses; add --scorer MODEL")
    if device != "auto" and scorer is None:
        raise UsageError("--device requires --scorer or --model; leave it out")
    from tellapart.review.start import open_session, serve_review

    serve_review(open_session(folder, captions, scorer, model, device), port, open_page)
