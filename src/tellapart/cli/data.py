"""``tellapart data``: lists the kinds of data sets, simplifies captions, and exports features."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.app import DATA, App
from tellapart.cli.encode_job import encode_job
from tellapart.cli.options import Device, InferencePrecision, Json, OutFile, Pictures
from tellapart.cli.output import show
from tellapart.cli.worker_options import JobOptions
from tellapart.cli.workers import job_counts, refuse_mostly_unreadable
from tellapart.data.caption_files import read_reference_file
from tellapart.data.reader_tables import kinds_of_data
from tellapart.errors import UsageError, nearest
from tellapart.evaluation.facts import check_tagger
from tellapart.jobs.job import SUFFIX, recorded_results
from tellapart.language.simplify import simplify_all
from tellapart.utils.messages import say
from tellapart.utils.outputs import check_output, write_output
from tellapart.utils.tables import table_of

app = App(
    name="data",
    help="List the kinds of data sets, simplify captions, and encode pictures.",
    no_args_is_help=True,
    rich_help_panel=DATA,
)
KEPT = ("subject", "svo")


@app.command()
def kinds(as_json: Json = False) -> None:
    """List the kinds of data sets that kind:path?key=value accepts."""
    rows, broken = kinds_of_data()
    show(dict(rows), lambda: table_of(("kind", "description"), rows), as_json)
    for line in broken:
        say(line)


@app.command()
def simplify(
    captions: Path,
    output: OutFile,
    keep: str = "svo",
    as_json: Json = False,
) -> None:
    """Simplify captions to their subject, or to subject, verb and object (paper 1, figure 4b).

    Args:
        captions: Captions or references, in any layout that eval reads.
        output: Output file, as JSON lines.
        keep: Part to keep: subject ('a girl'), or svo, which adds the verb and object ('a man riding a wave').
    """
    if keep not in KEPT:
        raise UsageError(f"--keep: expected {' or '.join(KEPT)}, got '{keep}'{nearest(keep, KEPT)}")
    check_output(output)
    check_tagger()
    file = read_reference_file(captions)
    found = simplify_all(file.texts, "subject" if keep == "subject" else "svo")
    if not found.texts:
        raise UsageError(
            f"{captions}: no subject was found in any of {found.captions:,} captions, so nothing was written"
        )
    lines = [
        json.dumps(
            {"id": id_, **_picture(file.files.get(id_, ""), captions, output), **_split(file.splits.get(id_, ""))}
            | {"references": texts},
            ensure_ascii=False,
        )
        for id_, texts in found.texts.items()
    ]
    write_output(output, "".join(f"{line}\n" for line in lines))
    summary = {
        "captions": found.captions,
        "kept": found.captions - found.dropped,
        "dropped": found.dropped,
        "words": round(found.words, 2),
        "output": str(output),
    }
    text = f"wrote {summary['kept']:,} captions with an average of {found.words:.1f} words to {output}"
    dropped = f"; skipped {found.dropped:,} captions without a subject" if found.dropped else ""
    show(summary, lambda: text + dropped, as_json)


def _picture(file: str, captions: Path, output: Path) -> dict[str, str]:
    """Returns the picture's path for the output, relative to the output's folder if the picture exists.

    Like the readers, searches next to the list and in ``images/``, with and without the folder in the name.
    """
    names = dict.fromkeys((file, Path(file).name)) if file else ()
    places = (captions.parent / folder / name for name in names for folder in ("images", ""))
    if (found := next((path for path in places if path.is_file()), None)) is not None:
        return {"image": os.path.relpath(found, output.parent)}
    return {"image": file} if file else {}


def _split(name: str) -> dict[str, str]:
    return {"split": name} if name else {}


@app.command()
def encode(
    scorer: str,
    pictures: Pictures,
    *,
    out: Annotated[str, typer.Option("--out", "-o")] = "features",
    overwrite: bool = False,
    device: Device = "auto",
    precision: InferencePrecision = "auto",
    options: JobOptions,
) -> None:
    """Encode pictures into a folder of files: 000000.npy (one row per picture), 000000.txt (their ids), …

    Interrupted runs resume when you repeat the command.

    Args:
        scorer: Scorer: folder, run, hub name, or 'scenes'.
        out: Output folder of the features: a path or URL.
        overwrite: Start over and replace existing features.
    """
    from tellapart.jobs.works.joined_features import check_features
    from tellapart.jobs.works.table import merge_job

    with recorded_results(f"{out}{SUFFIX}"):
        check_features(out)
    if options.workers is None and options.ray is None:
        options = replace(options, workers=1)
    with encode_job(scorer, pictures, out, options, device=device, precision=precision, overwrite=overwrite) as job:
        counts = job_counts(job)
        count = merge_job(job, out)
    say(f"{out}: {count:,} rows from {job.shards:,} shards")
    refuse_mostly_unreadable(counts)
