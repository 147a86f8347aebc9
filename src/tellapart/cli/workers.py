"""``--workers`` and ``--ray``: runs a command as a job on several processes or machines."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import typer

from tellapart.cli.worker_options import JobOptions, WorkerOptions
from tellapart.data import Skipped
from tellapart.errors import TellapartError, UsageError
from tellapart.jobs.cluster import load_ray
from tellapart.jobs.job import SUFFIX, Job, recorded_results
from tellapart.jobs.prepare import JobRequest, prepare
from tellapart.utils.atomic_writes import writable_file
from tellapart.utils.locks import locked
from tellapart.utils.messages import say
from tellapart.utils.outputs import check_output
from tellapart.utils.urls import is_url


@contextmanager
def finished_job(
    request: JobRequest,
    data: Sequence[str],
    out: str,
    options: WorkerOptions,
    label: str,
    *,
    overwrite: bool,
    suffix: str,
    replaces: bool = True,
) -> Iterator[tuple[Job, int]]:
    """Runs the job of a command that writes ``out``. Yields the job and the number of shards that were already done.

    The job's folder is ``OUT.job``. It stays locked until the end of the ``with`` block, in which the caller joins the
    results.

    With ``--estimate``, prints the estimate and exits the command.

    replaces: if False, raises `UsageError` if ``out`` exists but was not written by a job, unless ``overwrite`` is set.

    Raises `TellapartError` if shards have failed permanently.
    """
    from tellapart.jobs.run import refuse_failed, run_job

    load_ray()  # raises early if Ray is not installed
    path = f"{out}{SUFFIX}"
    estimated = options if isinstance(options, JobOptions) and options.estimate else None
    if estimated and overwrite:
        raise UsageError(
            "--estimate does not change existing results, so it cannot be combined with --overwrite; "
            "remove it, or choose another output with -o"
        )
    if not is_url(out) and not Path(out).is_dir():
        with recorded_results(path):
            writable_file(Path(out).expanduser()) if replaces else check_output(Path(out).expanduser())
    if not replaces and not is_url(out) and Path(out).is_symlink() and not Path(out).exists():
        raise UsageError(
            f"{out} is a link to {Path(out).readlink()}, which does not exist; create it, or "
            "choose another output with -o"
        )
    if not (replaces or overwrite) and Path(out).is_dir() and not Path(path).exists():
        raise UsageError(
            f"{out} already exists and was not written by a job; pass --overwrite to replace it, or "
            "choose another output with -o"
        )
    begins = not is_url(path) and not Path(path).expanduser().exists()
    with nullcontext() if is_url(path) else locked(Path(path).expanduser(), wait=False):
        job = prepare(request, list(data), out, path, suffix, shard_items=options.shard_items, overwrite=overwrite)
        if estimated is not None:
            from tellapart.jobs.estimate import estimate

            for line in estimate(job, estimated.cluster(), estimated.price):
                print(line)
            raise typer.Exit
        for number, reason in job.unsound(pictures=True).items():
            say(f"{reason}; repeating shard {number}")
            job.folder.remove(job.part(number))
        before = len(job.done())
        items = f", {job.items:,} items" if job.items is not None else ""
        there = f", {before:,} already done" if before else ""
        say(
            f"{job.path}: {job.shards:,} shards{items}{there}; to watch the progress from another "
            f"terminal: tellapart job status {job.path}"
        )
        try:
            run_job(job, options.cluster(), label)
        except TellapartError:  # no shard has begun, for example because a model is missing
            if begins and not job.done():
                shutil.rmtree(Path(path).expanduser())
            raise
        refuse_failed(job)
        yield job, before


def job_counts(job: Job) -> dict[str, Any]:
    """Returns the summed counts of all shards. Prints which pictures could not be read.

    Raises `TellapartError` if no picture could be read.
    """
    counts: dict[str, Any] = {"items": 0, "written": 0, "left_out": 0}
    left_out, seen = Skipped(), 0
    for number in sorted(job.done()):
        summary = job.summary(number)
        counts["items"] += summary["items"]
        counts["written"] += summary["written"]
        counts["left_out"] += summary["left_out_count"]
        for name, amount in summary["more"].items():
            counts[name] = counts.get(name, 0) + amount if isinstance(amount, int | float) else amount
        for name, reason in summary["left_out"]:
            if seen < Skipped.MAX_NAMED:
                left_out.add(name, reason)
                seen += 1
    if (line := left_out.line(counts["items"])) is not None:
        more = counts["left_out"] - len(left_out)
        say(line + (f" (and {more:,} more)" if more > 0 else ""))
    if not counts["written"]:
        raise TellapartError(
            f"{job.path}: none of the pictures could be read; if they are in another folder, "
            "specify it: FILE?images=FOLDER"
        )
    return counts


def refuse_mostly_unreadable(counts: dict[str, Any]) -> None:
    """Like `Dataset.refuse_mostly_unreadable`, but takes a job's counts."""
    unreadable = counts["items"] - counts["written"]
    if 2 * unreadable > counts["items"]:
        raise TellapartError(
            f"{unreadable:,} of {counts['items']:,} pictures could not be read, which is more "
            "than half; the results for the other pictures were written; fix or remove "
            "the unreadable pictures"
        )
