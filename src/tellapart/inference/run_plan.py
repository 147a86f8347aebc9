"""Carries out a `CaptionPlan`, with a model on this machine or behind a server, and prints the counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tellapart.boost.batch_backend import BatchBackend
from tellapart.captioners import load_captioner
from tellapart.captioners.captioner import Captioner
from tellapart.captions.authors import UNKNOWN, Author
from tellapart.captions.earlier_run import is_complete, recorded_precision
from tellapart.captions.formats import LOG, PRINTED
from tellapart.captions.paths_beside import check_beside
from tellapart.captions.store import CaptionStore
from tellapart.data import Dataset
from tellapart.errors import UsageError
from tellapart.inference.caption import caption_pictures
from tellapart.inference.caption_by_server import CONCURRENCY, caption_by_server
from tellapart.inference.options import CaptionOptions, refuse
from tellapart.inference.plan import CaptionPlan
from tellapart.inference.prompts import Prompts
from tellapart.inference.run_settings import caption_request
from tellapart.inference.server_backend import open_server
from tellapart.inference.server_captions import ServerCaptions
from tellapart.models.devices import resolve_device
from tellapart.models.precision import resolve_precision
from tellapart.scorers.load import load_scorer
from tellapart.utils.messages import say

BATCH_SIZE = 32


def caption_folder(
    plan: CaptionPlan, dataset: Dataset, options: CaptionOptions, device: str, precision: str, log: Path | None = None
) -> Callable[[], Captioner] | None:
    """Captions every picture that has no caption yet, and prints how many were captioned.

    Args:
        plan: the options, resolved for the model.
        log: the file whose hidden log stores the captions, or None to use the destination in the options.

    Returns:
        A function that loads the captioner, for checking captions later, or None for a model behind a server.

    Raises:
        UsageError: if the options are inconsistent or not supported.
        TellapartError: if the server did not answer for some pictures, or if most pictures cannot be read.
    """
    out, format = (None if options.out is None else Path(options.out)), options.format
    if log is not None:
        out, format = log, LOG
    elif out is None and format is None and len(dataset) == 1:
        out, format = PRINTED, "txt"
    run: dict[str, Any] = {
        "dataset": dataset, "out": out, "format": format, "overwrite": options.overwrite,
        "replace_edited": options.replace_edited, "decoding": plan.decoding, "best_of": options.best_of,
        "drop_guesses": options.drop_guesses, "claims": options.claims,
    }  # fmt: skip
    if plan.served:
        local = {
            "--device": None if device == "auto" or options.scorer is not None else device,
            "--precision": None if precision == "auto" else precision,
        }
        refuse(local, f"requires a local model, but {plan.model.partition('@')[0]} runs on a server")
        _caption_by_server(plan, options, run, device)
        return None
    return _caption_here(plan, options, run, resolve_device(device), precision)


def _caption_here(
    plan: CaptionPlan, options: CaptionOptions, run: dict[str, Any], place: torch.device, precision: str
) -> Callable[[], Captioner]:
    """Captions with a model on this machine. ``run``: fields of `CaptionRun`."""
    dataset, out, format, overwrite = run["dataset"], run["out"], run["format"], options.overwrite
    if precision == "auto" and not overwrite:
        precision = recorded_precision(out, format) or precision
    precision = resolve_precision(precision, place)
    prompts = None if plan.template is None else Prompts.read(plan.template, dataset, options.fields)
    _warn_of_other_author(run, plan.model, plan.template or "")
    request = caption_request(
        dataset.spec, plan.model, plan.decoding, best_of=options.best_of, scorer=options.scorer, precision=precision,
        features=plan.features, drop_guesses=options.drop_guesses, prompts=prompts, claims=options.claims,
    )  # fmt: skip
    redo = overwrite or (options.replace_edited and format != LOG)
    if not redo and is_complete(dataset, out, format, request):
        say(f"0 captions written, {len(dataset):,} already done")
        for line in dataset.report():
            say(line)
        return lambda: load_captioner(plan.model, place, precision)
    captioner = load_captioner(plan.model, place, precision)
    scorer = load_scorer(options.scorer, place) if options.scorer else None
    summary = caption_pictures(
        captioner, batch_size=options.batch_size or BATCH_SIZE, features=plan.features, scorer=scorer,
        prompts=prompts, **run,
    )  # fmt: skip
    if out != PRINTED:
        say(f"{summary.written:,} captions written, {summary.already:,} already done, {summary.empty:,} empty")
    for line in (*summary.lines(), *dataset.report()):
        say(line)
    dataset.refuse_mostly_unreadable()
    return lambda: captioner


def estimate_server(plan: CaptionPlan, dataset: Dataset, options: CaptionOptions) -> str:
    """Returns how many requests captioning all pictures with a server takes (expected and maximum), and what they
    cost. Sends no requests. Raises `UsageError`.
    """
    backend, prompt = open_server(plan.model)
    prompts = Prompts.read(prompt, dataset, options.fields)
    if not len(dataset):
        raise UsageError(f"{dataset.spec} contains no pictures; specify a folder with pictures")
    captions = ServerCaptions(
        backend, prompt, prompts=prompts, decoding=plan.decoding, best_of=options.best_of,
        drop_guesses=options.drop_guesses, schema=plan.schema, claims=options.claims,
    )  # fmt: skip
    half = ", at the batch price (half)" if isinstance(backend, BatchBackend) and backend.prices else ""
    return captions.announcement(list(dataset), Path()) + half


def _caption_by_server(plan: CaptionPlan, options: CaptionOptions, run: dict[str, Any], device: str) -> None:
    """Captions with a model behind a server. ``run``: fields of `CaptionRun`."""
    dataset = run["dataset"]
    backend, prompt = open_server(plan.model)
    _warn_of_other_author(run, backend.name, prompt)
    scorer = None if options.scorer is None else load_scorer(options.scorer, resolve_device(device))
    summary = caption_by_server(
        plan.model, concurrency=options.batch_size or CONCURRENCY, ledger=plan.ledger, scorer=scorer,
        prompts=Prompts.read(prompt, dataset, options.fields), schema=plan.schema, **run,
    )  # fmt: skip
    say(f"{summary.written:,} captions written, {summary.already:,} already done, {len(summary.failed):,} failed")
    for line in (*summary.lines(), *dataset.report()):
        say(line)
    summary.refuse_unanswered()
    dataset.refuse_mostly_unreadable()


def _warn_of_other_author(run: dict[str, Any], model: str, prompt: str) -> None:
    """Warns about text files beside the pictures that are kept although they were written with a different model,
    prompt or decoding settings.
    """
    if run["format"] != "txt" or run["overwrite"]:
        return
    dataset, author = run["dataset"], Author(model, prompt, run["decoding"].model_dump())
    check_beside(dataset, ".txt")
    captions = CaptionStore.open(dataset, Path(".txt")).captions().values()
    others = [one.author for one in captions if one.author is not None and not one.author.is_person
              and one.author != UNKNOWN and not _is_same(one.author, author)]  # fmt: skip
    if others:
        prompt = f" with the prompt '{others[0].prompt}'" if others[0].prompt else ""
        say(
            f"kept {len(others):,} .txt files that were written by {others[0].model}{prompt} or with other decoding "
            "settings; pass --overwrite to caption these pictures again"
        )


def _is_same(one: Author, other: Author) -> bool:
    """Returns whether two authors have the same model (by resolved path), prompt and decoding settings."""
    (model, _, options), (other_model, _, other_options) = (each.model.partition("?") for each in (one, other))
    same = model == other_model or (Path(model).exists() and Path(model).resolve() == Path(other_model).resolve())
    prompts = "prompt=" in options or one.prompt == other.prompt
    return same and options == other_options and prompts and one.decoding == other.decoding
