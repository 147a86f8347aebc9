"""``tellapart review``: serves a local page on which to browse and correct the captions of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.app import MEASURING, App
from tellapart.cli.options import Device, OpenPage, Port
from tellapart.errors import UsageError, need_extra

app = App()


@app.command(rich_help_panel=MEASURING)
def review(
    folder: str,
    captions: Annotated[Path | None, typer.Argument()] = None,
    scorer: str | None = None,
    model: str | None = None,
    device: Device = "auto",
    port: Port = 8765,
    open_page: OpenPage = False,
) -> None:
    """Review captions on a local page: filter, edit, accept, find and replace. Saves edits immediately.

    Args:
        folder: Folder of pictures, or a data set as kind:path?key=value.
        captions: Caption file, or a suffix: .txt, .xmp. Default: the .txt or .caption files in the folder, otherwise
            captions.jsonl, captions.csv or metadata.jsonl there, otherwise new .txt files.
        scorer: Scorer that finds captions that also fit other pictures: folder or hub name.
        model: Captioner to rewrite captions that also fit other pictures (requires --scorer).
    """
    need_extra("review", "the review page", "starlette", "uvicorn")
    if model is not None and scorer is None:
        raise UsageError("--model requires --scorer, which finds the captions to rewrite; add --scorer MODEL")
    if device != "auto" and scorer is None:
        raise UsageError("--device requires --scorer or --model; add one, or remove --device")
    from tellapart.review.start import open_session, serve_review

    serve_review(open_session(folder, captions, scorer, model, device), port, open_page)
