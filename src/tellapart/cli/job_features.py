"""Encoding by many workers: for ``encode``, and before ``eval`` and ``bags mine``, which go on from the store."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tellapart.cli.job_options import JobOptions, finished_job
from tellapart.utils.messages import detail

if TYPE_CHECKING:
    from tellapart.jobs.job import Job


@contextmanager
def encode_job(
    scorer: str, pictures: Sequence[str], out: str, options: JobOptions, *, device: str, precision: str, overwrite: bool
) -> Iterator[Job]:
    """The job that encodes these pictures, done; no other process works in its folder until the block ends."""
    from tellapart.jobs.job import Request
    from tellapart.jobs.works import SUFFIX
    from tellapart.models.loading import files_digest
    from tellapart.models.plugins import allowed_code

    options.wanted  # noqa: B018 (options that have no effect are refused)
    here = Path(scorer).expanduser()
    place = str(here.absolute()) if here.exists() else scorer
    settings = {"scorer": place, "device": device, "precision": precision, "code": allowed_code()}
    deciding = {"scorer": scorer, "scorer_files": files_digest(scorer, "scorer"), "precision": precision}
    request = Request("encode", settings, deciding)
    with finished_job(
        request, pictures, out, options, "encoding", overwrite=overwrite, suffix=SUFFIX, replaces=False
    ) as (job, _):
        yield job


def encode_ahead(
    scorers: Sequence[str], data: Sequence[Sequence[str]], out: str | None, options: JobOptions, *, device: str,
    precision: str,
) -> None:  # fmt: skip
    """Encode data sets by many workers into this machine's feature store, where the plain command finds them.

    The jobs lie beside ``out`` (None: in the folder of the store), and are removed once their rows are taken.
    """
    from tellapart.features.store import FeatureStore
    from tellapart.jobs.works import take_features

    for scorer in scorers:
        for specs in data:
            name = hashlib.blake2b("\0".join([scorer, precision, *specs]).encode(), digest_size=8).hexdigest()
            place = f"{out}.{name}" if out is not None else str(FeatureStore().folder / "jobs" / name)
            with encode_job(scorer, specs, place, options, device=device, precision=precision, overwrite=False) as job:
                detail(f"{take_features(job):,} rows were taken into the feature store")
                shutil.rmtree(job.path)
