"""``tellapart data``: what is made of data sets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.common import DATA, App
from tellapart.cli.output import Json, show
from tellapart.errors import UsageError

app = App(name="data", help="Make other data sets of captions.", no_args_is_help=True)
KEPT = ("subject", "svo")


@app.callback(rich_help_panel=DATA)
def data() -> None:
    """Make other data sets of captions."""


@app.command()
def simplify(
    captions: Annotated[Path, typer.Argument(help="Captions or references, in any layout that eval reads.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write them, as JSON lines.", dir_okay=False)],
    keep: Annotated[
        str, typer.Option(help="subject ('a girl'), or svo: with its verb and object ('a man riding a wave').")
    ] = "svo",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file where it exists.")] = False,
    as_json: Json = False,
) -> None:
    """Parse the simplest captions out of a caption file (paper 1, figure 4b): subject, or subject, verb and object."""
    from tellapart.data.caption_files import read_reference_file
    from tellapart.errors import nearest
    from tellapart.evaluation.facts.extract import check_tagger, simplify_all
    from tellapart.utils.files import replace_text, write_errors

    if keep not in KEPT:
        raise UsageError(f"--keep is '{keep}'{nearest(keep, KEPT)}; expected {' or '.join(KEPT)}")
    if output.exists() and not overwrite:
        raise UsageError(f"{output} exists; add --overwrite to replace it, or name another file")
    check_tagger()
    file = read_reference_file(captions)
    found = simplify_all(file.texts, "subject" if keep == "subject" else "svo")
    if not found.texts:
        raise UsageError(f"{captions}: none of {found.captions:,} captions names anything; nothing was written")
    lines = [
        json.dumps(
            {"id": id_, **_picture(file.files.get(id_, ""), captions, output), **_split(file.splits.get(id_, ""))}
            | {"references": texts},
            ensure_ascii=False,
        )
        for id_, texts in found.texts.items()
    ]
    with write_errors(output, "nothing was written; name a folder that exists and can be written"):
        replace_text(output, "".join(f"{line}\n" for line in lines))
    summary = {
        "captions": found.captions,
        "kept": found.captions - found.dropped,
        "dropped": found.dropped,
        "words": round(found.words, 2),
        "output": str(output),
    }
    text = f"{summary['kept']:,} captions of {found.words:.1f} words in {output}"
    dropped = f"; {found.dropped:,} name nothing and are left out" if found.dropped else ""
    show(summary, lambda: text + dropped, as_json)


def _picture(file: str, captions: Path, output: Path) -> dict[str, str]:
    """The picture as the output has to name it: a relative name is one from the folder of the list."""
    if not file or not (captions.parent / file).is_file():
        return {"image": file} if file else {}
    return {"image": os.path.relpath(captions.parent / file, output.parent)}


def _split(name: str) -> dict[str, str]:
    return {"split": name} if name else {}
