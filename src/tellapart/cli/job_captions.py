"""``tellapart caption --workers N``: the job, and the file as the plain command would have written it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tellapart.cli.job_options import JobOptions, finished_job, refuse_mostly_unreadable, told
from tellapart.errors import UsageError
from tellapart.utils.messages import say

if TYPE_CHECKING:
    from tellapart.models.decoding import Decoding


def caption_job(
    model: str, pictures: Sequence[str], out: str, decoding: Decoding, options: JobOptions, *, batch_size: int,
    features: str | None, overwrite: bool, device: str, precision: str, format: str | None,
) -> None:  # fmt: skip
    """Caption by many workers, and join their captions in ``out``."""
    from tellapart.inference.caption import caption_request
    from tellapart.inference.writers import settings_file
    from tellapart.jobs.job import Request
    from tellapart.jobs.merge import check_format
    from tellapart.jobs.storage import is_url
    from tellapart.jobs.works import merge_job
    from tellapart.models.plugins import allowed_code
    from tellapart.utils.files import replace_text

    if format is not None and check_format(out) != f".{format}":
        raise UsageError(f"{out}: with --workers the name says the format; leave out --format {format}")
    check_format(out)
    here = Path(model).expanduser()
    place = str(here.absolute()) if here.exists() else model
    at = str(Path(features).expanduser().absolute()) if features is not None else None
    request = caption_request(" ".join(pictures), model, decoding, None, None, features, precision, False)
    settings = {
        "captioner": place, "decoding": decoding.model_dump(), "batch_size": batch_size, "features": at,
        "device": device, "precision": precision, "code": allowed_code(),
    }  # fmt: skip
    deciding = {key: value for key, value in request.items() if key != "data"}
    with finished_job(
        Request("caption", settings, deciding), pictures, out, options, "captioning", overwrite=overwrite,
        suffix=".jsonl", replaces=False,
    ) as (job, before):  # fmt: skip
        counts = told(job)
        count = merge_job(job, out)
        if not is_url(out) and Path(out).suffix.lower() in (".jsonl", ".csv"):  # the plain command knows the file again
            known = request | (job.value.get("models") or {})
            replace_text(settings_file(Path(out)), json.dumps(known, indent=1, sort_keys=True) + "\n")
    there = f" ({before:,} of {job.shards:,} shards already done)" if before else ""
    say(f"{count:,} captions written{there}, {counts.get('empty', 0):,} are empty")
    refuse_mostly_unreadable(counts)
