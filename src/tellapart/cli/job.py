"""``tellapart job``: the state of a job of many workers, and its results joined."""

from __future__ import annotations

from typing import Annotated

import typer

from tellapart.cli.common import HOUSEKEEPING, App
from tellapart.cli.output import Json, show
from tellapart.errors import UsageError
from tellapart.utils.messages import say

app = App(name="job", help="Jobs of many workers: how far they are, and their results.", no_args_is_help=True)
JobFolder = Annotated[str, typer.Argument(metavar="FOLDER", help="The job's folder: RESULT.job, or its address.")]


@app.callback(rich_help_panel=HOUSEKEEPING)
def job() -> None:
    """The group; its help is the app's."""


@app.command()
def status(folder: JobFolder, as_json: Json = False) -> None:
    """Show how far a job is, from its files alone: on any machine that reads them."""
    from tellapart.jobs.job import Job, status_lines, status_of

    found = status_of(Job.open(folder))
    show(found, lambda: "\n".join(status_lines(found)), as_json)


@app.command()
def merge(
    folder: JobFolder,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="captions.jsonl, .csv, .parquet, or .tar. Default: FOLDER without .job."),
    ] = None,
    without_failed: Annotated[
        bool, typer.Option("--without-failed", help="Leave out the shards that were set aside.")
    ] = False,
) -> None:
    """Join the results of a job's shards, in the order of the data."""
    from tellapart.jobs.job import SUFFIX, Job
    from tellapart.jobs.works import merge_job

    found = Job.open(folder)
    target = out or folder.rstrip("/").removesuffix(SUFFIX)
    if target == folder.rstrip("/"):
        raise UsageError(f"{folder}: does not end in {SUFFIX}, so name the result: -o captions.jsonl")
    count = merge_job(found, target, without_failed=without_failed)
    say(f"{target}: {count:,} lines of {found.shards:,} shards")
