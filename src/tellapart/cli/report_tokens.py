"""``tellapart report tokens``: plots a caption's loss per token."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.options import Device, Json, OutFile
from tellapart.cli.output import show
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.report.token_losses import draw_token_losses
from tellapart.utils.messages import say
from tellapart.utils.outputs import check_output, write_output
from tellapart.utils.tables import table_of


def tokens(
    model: str,
    data: str,
    caption: str | None = None,
    picture: Annotated[str | None, typer.Option("--id")] = None,
    out: OutFile = Path("tokens.svg"),
    as_json: Json = False,
    device: Device = "auto",
) -> None:
    """Plot the loss of each token of a caption under MLE and SMILE (paper 1, figure 5).

    Args:
        model: Captioner: folder, run, or hub name.
        data: Pictures: kind:path?key=value, a folder, or a file.
        caption: Caption. Default: the picture's first reference.
        picture: Id of the picture. Default: the first picture.
        out: Output file of the figure.
    """
    from tellapart.evaluation.mle_smile_losses import losses_of

    check_output(out, ".svg")
    items = {item.id: item for item in open_data(data)}
    item = items.get(picture) if picture is not None else next(iter(items.values()), None)
    if item is None:
        raise UsageError(f"{data} has no picture '{picture}'; expected an id such as '{next(iter(items), '')}'")
    text = caption or next(iter(item.references), None)
    if not text or not text.strip():
        raise UsageError(f"'{item.id}' has no references; specify a caption: --caption 'a dog on a lawn'")
    losses = losses_of(model, item, text, device)
    write_output(out, draw_token_losses(text, losses))
    names = ("token", "mle", "smile", "likeliest", "p")
    value = {"id": item.id, "caption": text, "tokens": [dict(zip(names, row, strict=True)) for row in losses]}
    rows = [(word, f"{mle:.3f}", f"{smile:.3f}", likeliest, f"{p:.3f}") for word, mle, smile, likeliest, p in losses]
    show(value, lambda: table_of(names, rows, f"{text} ({item.id}): loss per token in nats"), as_json)
    say(f"figure: {out}")
