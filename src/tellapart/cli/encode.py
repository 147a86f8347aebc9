"""``tellapart encode``: features of pictures to files, for searches and programs of one's own."""

from __future__ import annotations

from typing import Annotated

import typer

from tellapart.cli.common import DATA, App
from tellapart.cli.devices import Device, InferencePrecision
from tellapart.cli.job_options import (
    CpusPerWorker,
    Estimate,
    GpusPerWorker,
    JobOptions,
    Price,
    RayAddress,
    ShardItems,
    WorkerCount,
)
from tellapart.utils.messages import say

app = App()


@app.command(rich_help_panel=DATA)
def encode(
    scorer: Annotated[str, typer.Argument(help="A scorer: folder, run, hub name, or 'scenes'.")],
    pictures: Annotated[list[str], typer.Argument(help="Folders, picture files, or data sets as kind:path?key=value.")],
    out: Annotated[str, typer.Option("--out", "-o", help="The folder of the features, or its address.")] = "features",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start again and replace what is there.")] = False,
    device: Device = "auto",
    precision: InferencePrecision = "auto",
    workers: WorkerCount = None,
    ray: RayAddress = None,
    cpus_per_worker: CpusPerWorker = None,
    gpus_per_worker: GpusPerWorker = None,
    shard_items: ShardItems = None,
    estimate: Estimate = False,
    price: Price = None,
) -> None:
    """Encode pictures: a folder of 000000.npy (a row a picture) and 000000.txt (its id). It resumes, as caption does.

    The work is that of a job; without --workers one worker does it.
    """
    from tellapart.cli.job_features import encode_job
    from tellapart.cli.job_options import refuse_mostly_unreadable, told
    from tellapart.jobs.works import merge_job

    many = workers if workers is not None or ray is not None else 1
    options = JobOptions(many, ray, cpus_per_worker, gpus_per_worker, shard_items, estimate, price)
    with encode_job(scorer, pictures, out, options, device=device, precision=precision, overwrite=overwrite) as job:
        counts = told(job)
        count = merge_job(job, out)
    say(f"{out}: {count:,} rows of {job.shards:,} shards")
    refuse_mostly_unreadable(counts)
