"""Encoding by many workers: for ``encode``, and before ``eval`` and ``bags mine``, which go on from the store."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tellapart.cli.job_options import JobOptions, begun, run
from tellapart.utils.messages import detail

if TYPE_CHECKING:
    from tellapart.jobs.job import Job


def encode_job(
    scorer: str, pictures: Sequence[str], out: str, options: JobOptions, *, device: str, precision: str, overwrite: bool
) -> Job:
    """The job that encodes these pictures, done."""
    from tellapart.jobs.features import SUFFIX
    from tellapart.jobs.job import Request
    from tellapart.models.loading import files_digest
    from tellapart.models.plugins import allowed_code

    options.wanted  # noqa: B018 (options that have no effect are refused)
    here = Path(scorer).expanduser()
    place = str(here.absolute()) if here.exists() else scorer
    settings = {"scorer": place, "device": device, "precision": precision, "code": allowed_code()}
    deciding = {"scorer": scorer, "scorer_files": files_digest(scorer, "scorer"), "precision": precision}
    request = Request("encode", settings, deciding)
    job = begun(request, pictures, out, options, overwrite=overwrite, suffix=SUFFIX, replaces=False)
    run(job, options, "encoding")
    return job


def encode_ahead(
    scorers: Sequence[str], data: Sequence[Sequence[str]], out: str | None, options: JobOptions, *, device: str,
    precision: str,
) -> None:  # fmt: skip
    """Encode data sets by many workers into this machine's feature store, where the plain command finds them.

    The jobs lie beside ``out`` (None: in the folder of the store), and are removed once their rows are taken.
    """
    from tellapart.features.store import FeatureStore
    from tellapart.jobs.features import take_features

    for scorer in scorers:
        for specs in data:
            name = hashlib.blake2b("\0".join([scorer, precision, *specs]).encode(), digest_size=8).hexdigest()
            place = f"{out}.{name}" if out is not None else str(FeatureStore().folder / "jobs" / name)
            job = encode_job(scorer, specs, place, options, device=device, precision=precision, overwrite=False)
            detail(f"{take_features(job):,} rows were taken into the feature store")
            shutil.rmtree(job.path)
