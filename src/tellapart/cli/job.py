"""``tellapart job``: shows the progress of a multi-worker job, and merges its results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.app import HOUSEKEEPING, App
from tellapart.cli.boost import merge_parts
from tellapart.cli.options import Json
from tellapart.cli.output import show
from tellapart.errors import UsageError
from tellapart.jobs.job import SUFFIX, Job
from tellapart.jobs.status import status_lines, status_of
from tellapart.utils.messages import say

app = App(
    name="job",
    help="Show the progress of multi-worker jobs, and merge their results.",
    no_args_is_help=True,
    rich_help_panel=HOUSEKEEPING,
)
JobFolder = Annotated[str, typer.Argument(metavar="FOLDER", help="Job folder (RESULT.job), as a path or URL.")]


@app.command()
def status(folder: JobFolder, as_json: Json = False) -> None:
    """Show the progress of a job, on any machine that can read its files."""
    found = status_of(Job.open(folder))
    show(found, lambda: "\n".join(status_lines(found)), as_json)


@app.command()
def merge(
    parts: Annotated[list[str], typer.Argument(metavar="FOLDER | PARTS...")],
    out: Annotated[str | None, typer.Option("--out", "-o")] = None,
    without_failed: bool = False,
    as_json: Json = False,
) -> None:
    """Merge the results of a job, or the parts of a boosted data set, in the order of the data.

    Args:
        parts: Job folder, or the results of boost --shard 1/N to N/N.
        out: Output: captions.jsonl, .csv, .parquet, or .tar. Default: FOLDER without .job, or boosted.jsonl.
        without_failed: Omit failed shards.
    """
    from tellapart.jobs.works.table import merge_job

    folder = parts[0]
    if len(parts) > 1 or folder.endswith(".jsonl") or Path(folder).is_file():
        result = "boosted.jsonl" if out is None else out
        if without_failed:
            raise UsageError("--without-failed requires a job folder; remove it")
        for what, name in (*(("PARTS", part) for part in parts), ("--out", result)):
            if not name or Path(name).is_dir():
                why = "is a directory; " if name else ""
                raise UsageError(f"{what} '{name}': {why}expected the name of a file")
        merge_parts([Path(part) for part in parts], Path(result), as_json)
        return
    found = Job.open(folder)
    target = out or folder.rstrip("/").removesuffix(SUFFIX)
    if target == folder.rstrip("/"):
        raise UsageError(f"{folder} does not end in {SUFFIX}; specify the output file: -o captions.jsonl")
    count = merge_job(found, target, without_failed=without_failed)
    if as_json:
        show({"out": target, "items": count, "shards": found.shards}, lambda: "", as_json)
    say(f"{target}: {count:,} lines from {found.shards:,} shards")
