"""``tellapart caption``: captions pictures, in this process or, with ``--workers``, as a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tellapart.captions.earlier_run import same_models
from tellapart.captions.replacement import Replace, guard_edited
from tellapart.cli.app import MEASURING, App
from tellapart.cli.options import Device, InferencePrecision, Pictures
from tellapart.cli.worker_options import JobOptions
from tellapart.cli.workers import finished_job, job_counts, refuse_mostly_unreadable
from tellapart.data.open import open_many
from tellapart.errors import UsageError
from tellapart.inference.options import CaptionOptions
from tellapart.inference.prompts import Prompts
from tellapart.jobs.job import SUFFIX
from tellapart.jobs.prepare import JobRequest
from tellapart.jobs.works.joined_captions import check_format
from tellapart.utils.allowed_code import allowed_code
from tellapart.utils.messages import say
from tellapart.utils.urls import is_url

if TYPE_CHECKING:
    from tellapart.inference.plan import CaptionPlan

app = App()


@app.command(rich_help_panel=MEASURING)
def caption(
    model: str,
    pictures: Pictures,
    *,
    options: CaptionOptions,
    device: Device = "auto",
    precision: InferencePrecision = "auto",
    job: JobOptions,
) -> None:
    """Caption pictures. To resume an interrupted run, repeat the command with the same --precision.

    Args:
        model: Captioner: folder, run, hub name, 'scenes', openai:MODEL@URL, anthropic:MODEL?batch=1, or your own as
            module:name. Add options as MODEL?key=value.
    """
    from tellapart.inference.plan import check_destination, plan_captions
    from tellapart.inference.run_plan import caption_folder, estimate_server

    plan = plan_captions(model, options)
    if plan.served and job.estimate and job.workers is None and job.ray is None:
        if job.price is not None:
            raise UsageError(
                "--price is the hourly price of a worker; to specify prices per million tokens, append them to the "
                "model's name: ?in=2.5&out=10"
            )
        print(estimate_server(plan, open_many(pictures), options))
    elif job.wanted:
        caption_job(plan, pictures, options, job, device, precision)
    else:
        check_destination(options)
        caption_folder(plan, open_many(pictures), options, device, precision)


def caption_job(
    plan: CaptionPlan, pictures: Sequence[str], options: CaptionOptions, job: JobOptions, device: str, precision: str
) -> None:
    """Captions with multiple workers, and merges the results. Raises `UsageError` for unsupported options."""
    from tellapart.inference import run_plan, run_settings
    from tellapart.jobs.works.table import merge_job

    check_job(plan, pictures, options)
    out = str(options.out)
    prompts = None if plan.template is None else Prompts.read(plan.template, open_many(pictures), options.fields)
    if check_format(out) != f".{options.format}" and options.format is not None:
        raise UsageError(
            f"--format {options.format} cannot be combined with --workers, which infers the format "
            f"from {out}; remove it"
        )
    here = Path(plan.model).expanduser()
    request = run_settings.caption_request(
        " ".join(pictures), plan.model, plan.decoding, features=plan.features, precision=precision, prompts=prompts
    )
    settings = {
        "captioner": str(here.absolute()) if here.exists() else plan.model,
        "decoding": plan.decoding.model_dump(),
        "batch_size": options.batch_size or run_plan.BATCH_SIZE,
        "features": None if plan.features is None else str(Path(plan.features).expanduser().absolute()),
        "device": device,
        "precision": precision,
        "code": allowed_code(),
        "prompts": None if prompts is None else f"{out}{SUFFIX}",
    }
    own = not is_url(out) and guard_edited(Path(out), Replace(options.overwrite, options.replace_edited))
    job_request = JobRequest("caption", settings, same_models(request), None if prompts is None else prompts.by_id)
    with finished_job(
        job_request, pictures, out, job, "captioning", overwrite=options.overwrite, suffix=".jsonl", replaces=own
    ) as (done, before):
        counts = job_counts(done)
        count = merge_job(done, out)
    there = f" ({before:,} of {done.shards:,} shards already done)" if before else ""
    say(f"{count:,} captions written{there}, {counts.get('empty', 0):,} are empty")
    refuse_mostly_unreadable(counts)


def check_job(plan: CaptionPlan, pictures: Sequence[str], options: CaptionOptions) -> None:
    """Raises `UsageError` for options that workers do not support."""
    if plan.served:
        raise UsageError(
            "--workers and --ray require a local model; remove them, or increase --batch-size for "
            "more concurrent requests"
        )
    compared = {"--best-of": options.best_of, "--drop-guesses": options.drop_guesses, "--scorer": options.scorer}
    for name, typed in compared.items():
        if typed:
            raise UsageError(
                f"{name} compares each picture with all others and is not available with --workers; remove it"
            )
    if options.claims:
        raise UsageError("--claims is not available with --workers or --ray; remove --claims, or run without workers")
    if options.out is None or options.out == "-" or options.format == "txt":
        raise UsageError("--workers and --ray write captions to a single file; use -o captions.jsonl")
    if plan.template is not None and any(map(is_url, pictures)):
        raise UsageError("the fields of --prompt are read from local files; copy the pictures to this machine")
