"""Runs the jobs that encode pictures, for ``data encode`` and, before mining, for ``bags mine``."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tellapart.cli.worker_options import WorkerOptions
from tellapart.cli.workers import finished_job
from tellapart.jobs.job import Job
from tellapart.jobs.prepare import JobRequest
from tellapart.utils.allowed_code import allowed_code
from tellapart.utils.messages import detail


@contextmanager
def encode_job(
    scorer: str,
    pictures: Sequence[str],
    out: str,
    options: WorkerOptions,
    *,
    device: str,
    precision: str,
    overwrite: bool,
) -> Iterator[Job]:
    """Runs the job that encodes these pictures, and yields it. Its folder stays locked until the block ends."""
    from tellapart.features.encoded_rows import FORMAT, SUFFIX
    from tellapart.models.digests import files_digest

    options.wanted  # noqa: B018 (rejects options that have no effect)
    here = Path(scorer).expanduser()
    place = str(here.absolute()) if here.exists() else scorer
    settings = {"scorer": place, "device": device, "precision": precision, "code": allowed_code()}
    # A scorer is identified by its files, not by its path.
    deciding = {"scorer": files_digest(scorer, "scorer") or scorer, "precision": precision, "format": FORMAT}
    request = JobRequest("encode", settings, deciding)
    with finished_job(
        request, pictures, out, options, "encoding", overwrite=overwrite, suffix=SUFFIX, replaces=False
    ) as (job, _):
        yield job


def encode_ahead(
    scorer: str, data: Sequence[str], out: str, options: WorkerOptions, *, device: str, precision: str
) -> None:
    """Has several workers encode a data set into this machine's feature store, from which the command then reads.

    The job's folder is next to ``out``, and is removed once its rows are in the store.
    """
    from tellapart.jobs.works.joined_features import take_features

    name = hashlib.blake2b("\0".join([scorer, precision, *data]).encode(), digest_size=8).hexdigest()
    place = f"{out}.{name}"
    with encode_job(scorer, data, place, options, device=device, precision=precision, overwrite=False) as job:
        detail(f"added {take_features(job):,} rows to the feature store")
        shutil.rmtree(job.path)
