"""``tellapart caption``: write captions of pictures.

``tellapart caption --workers N``: the job, and the file as the plain command would have written it.
``tellapart caption --for PURPOSE``: alt text, and captions for fine-tuning an image generator (`PurposeOptions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

import typer

from tellapart.cli.app import MEASURING, App
from tellapart.cli.caption_purpose import LORA, PurposeOptions
from tellapart.cli.options import Device, InferencePrecision, JobOptions
from tellapart.cli.workers import finished_job, refuse_mostly_unreadable, told
from tellapart.errors import UsageError
from tellapart.utils.messages import say
from tellapart.utils.registry import allowed_code

if TYPE_CHECKING:
    from tellapart.captions.writers import Replace
    from tellapart.data import Dataset
    from tellapart.inference.prompts import Prompts
    from tellapart.models.decoding import Decoding


app = App()


@app.command(rich_help_panel=MEASURING)
def caption(
    model: Annotated[str, typer.Argument(help="A captioner: folder, run, hub name, 'scenes', openai:MODEL@URL.")],
    pictures: Annotated[list[str], typer.Argument(help="Folders, picture files, or data sets as kind:path?key=value.")],
    *,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help="captions.jsonl or .csv (with --workers also .parquet, .tar); - prints, as one picture does without.",
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(help="jsonl, csv, or txt: a .txt beside each picture, with -o - captions. Default: as -o ends."),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(help="What the captioner is asked, or begins with; may have fields: 'Tags: {tags}. {text}'."),
    ] = None,
    fields: Annotated[
        Path | None,
        typer.Option(help="Fields of --prompt by id or file name: .jsonl, .csv, …", dir_okay=False),
    ] = None,
    detail: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="How much to say, 0 to 1, of a captioner trained for it; as ?detail= after its name."
        ),
    ] = None,
    beams: Annotated[
        int | None, typer.Option(min=1, help="Number of beams; 1 is greedy. Default: as the model was saved, else 5.")
    ] = None,
    length_penalty_over: Annotated[
        Literal["new", "all"] | None,
        typer.Option(
            help="Tokens that beam search divides by: the new ones, or all with the prompt, as in the papers. "
            "[default: as the model was saved, else new]"
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Longest caption, in tokens. Default: as the model was saved, else 30; 256 of a server."
        ),
    ] = None,
    best_of: Annotated[
        int | None,
        typer.Option("--best-of", metavar="N", min=2, help="Sample N captions, keep the one with the highest score."),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            help="Sample N captions and keep all, for diversity metrics; with --beams the N best.",
        ),
    ] = None,
    consensus: Annotated[
        int | None,
        typer.Option(metavar="N", min=3, help="Sample N captions, keep the one that the others agree with most."),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(min=0.01, help="For --best-of and --samples; default 1. For --consensus; default 0.6."),
    ] = None,
    scorer: Annotated[
        str | None, typer.Option(help="The scorer of --best-of, or beside --consensus: folder, run, or hub name.")
    ] = None,
    scorer_weight: Annotated[
        float | None,
        typer.Option(min=0.001, help="Of --consensus with --scorer: more finds more pictures. Default: 0.1."),
    ] = None,
    drop_guesses: Annotated[
        bool,
        typer.Option("--drop-guesses", help="Drop or soften words as likely for other pictures as for this one."),
    ] = False,
    confidence: Annotated[
        float | None,
        typer.Option(min=0.01, max=0.99, help="Drop or soften nouns of a smaller probability, and what is said twice."),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Pictures at once. Default: 32.")] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Features by item id: a folder of .npz, or .h5. Default: computed."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Caption anew. Texts that a person wrote or edited stay.")
    ] = False,
    replace_edited: Annotated[
        bool,
        typer.Option("--replace-edited", help="Replace texts that a person wrote or edited, too; a backup is kept."),
    ] = False,
    device: Device = "auto",
    precision: InferencePrecision = "auto",
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Of a server: concurrent requests. Default: 16.")
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(help="Of a server: where answers are kept. Default: OUT.ledger.jsonl.", dir_okay=False),
    ] = None,
    purpose: PurposeOptions,
    options: JobOptions,
) -> None:
    """Caption pictures. After an interruption, the same command goes on, in the precision in which it was begun."""
    from tellapart.captions.writers import LOG, Replace
    from tellapart.data.open import open_many
    from tellapart.inference.prompts import Prompts, has_fields
    from tellapart.inference.server import MAX_TOKENS, open_server
    from tellapart.models.decoding import DEFAULT
    from tellapart.models.names import is_server
    from tellapart.models.saved import default_decoding
    from tellapart.utils.files import is_url

    served, replaces = is_server(model), Replace(overwrite, replace_edited)
    if purpose.maker() is not None:
        whole = {"--workers": options.workers, "--ray": options.ray}
        if purpose.purpose != LORA:
            whole["--samples"] = samples
        _refuse(whole, f"has no effect on the one text that --for {purpose.purpose} makes of a picture on this machine")
    template = prompt if prompt is not None and not served and has_fields(prompt) else None
    if template is None:
        _refuse({"--fields": None if served else fields}, "fills fields of --prompt, such as {tags}, and it has none")
    if prompt is not None and template is None:
        from tellapart.captioners.load import quoted

        model = _with_option(model, "prompt", quote(prompt, safe=" ") if served else quoted(prompt))
    if detail is not None and not served:
        model = _with_option(model, "detail", f"{detail:g}")
    default = DEFAULT.model_copy(update={"max_tokens": MAX_TOKENS}) if served else default_decoding(model)
    longest = max_tokens or default.max_tokens
    decoding = caption_decoding(beams, longest, best_of, samples, temperature, consensus, default)
    if length_penalty_over is not None:
        if decoding.kind != "beam":
            raise UsageError("--length-penalty-over requires beam search; type --beams 5 with it, or leave it out")
        decoding = decoding.model_copy(update={"length_penalty_over": length_penalty_over})
    if weight := weight_of_scorer(scorer_weight, scorer, consensus):
        decoding = decoding.model_copy(update={"scorer_weight": weight})
    if confidence is not None:
        decoding = decoding.model_copy(update={"confidence": confidence})
    if served:
        local: dict[str, Any] = {
            "--beams": beams,
            "--length-penalty-over": length_penalty_over,
            "--detail": detail,
            "--batch-size": batch_size,
            "--features": features,
            "--device": None if device == "auto" or scorer is not None else device,
        }
        local |= {"--precision": None if precision == "auto" else precision}
        _refuse(local, f"is of a model on this machine, and {model.partition('@')[0]} is behind a server")
        if options.wanted:
            raise UsageError("a server has its own workers; leave out --workers and --ray, or raise --concurrency")
        if out is not None and is_url(out):
            raise UsageError(f"{out}: an address; captions of a server go to a disk, such as -o captions.jsonl")
        dataset = open_many(pictures)
        with purpose.texts(dataset, pictures, out, format, replaces, samples) as texts:
            path, format = _destination(out, format, dataset) if texts is None else (texts.out, LOG)
            chosen: dict[str, Any] = {"best_of": best_of, "drop_guesses": drop_guesses}
            if scorer is not None:
                from tellapart.models.devices import resolve_device
                from tellapart.scorers.load import load_scorer

                chosen["scorer"] = load_scorer(scorer, resolve_device(device))
            chosen |= {"ledger": ledger, "overwrite": overwrite, "replace_edited": replace_edited}
            chosen["prompts"] = Prompts.read(open_server(model)[1], dataset, fields)
            _caption_by_server(model, dataset, path, format, decoding, concurrency, chosen)
        return
    _refuse({"--concurrency": concurrency, "--ledger": ledger}, "is of a model behind a server (openai:MODEL@URL)")
    from tellapart.captioners.load import load_captioner
    from tellapart.captions.writers import recorded_precision
    from tellapart.inference.caption import caption_pictures, nothing_left
    from tellapart.models.devices import resolve_device, resolve_precision
    from tellapart.scorers.load import load_scorer

    if options.wanted:
        whole = {"--best-of": best_of is not None, "--drop-guesses": drop_guesses, "--scorer": scorer is not None}
        for name, typed in whole.items():
            if typed:
                raise UsageError(f"{name} compares each picture with all others, which no worker has; leave it out")
        if out is None or out == "-" or format == "txt":
            raise UsageError("with --workers or --ray, captions go to one file; type -o captions.jsonl")

        prompts = None
        if template is not None:
            if any(map(is_url, pictures)):
                raise UsageError("fields of --prompt are filled from files on this machine; copy the pictures here")
            prompts = Prompts.read(template, open_many(pictures), fields)
        caption_job(
            model, pictures, out, decoding, options, batch_size=batch_size or 32, features=features,
            replaces=replaces, device=device, precision=precision, format=format, prompts=prompts,
        )  # fmt: skip
        return
    if out is not None and is_url(out):
        raise UsageError(f"{out}: an address, to which a job writes; add --workers 1, or name a file on disk")
    dataset = open_many(pictures)
    place = resolve_device(device)
    with purpose.texts(dataset, pictures, out, format, replaces, samples) as texts:
        path, format = _destination(out, format, dataset) if texts is None else (texts.out, LOG)
        if precision == "auto" and not overwrite:
            precision = recorded_precision(path, format) or precision
        precision = resolve_precision(precision, place)
        if texts is not None:
            texts.captioner = lambda: load_captioner(model, place, precision)
        request: Any = {"decoding": decoding, "format": format, "best_of": best_of, "features": features}
        request |= {"drop_guesses": drop_guesses, "prompts": template and Prompts.read(template, dataset, fields)}
        redo = overwrite or (replace_edited and texts is None)
        if not redo and nothing_left(dataset, path, model, scorer=scorer, precision=precision, **request):
            say(f"0 captions written, {len(dataset):,} already done")
            for line in dataset.report():
                say(line)
            return
        captioner = load_captioner(model, place, precision)
        if texts is not None:
            texts.captioner = lambda: captioner
        summary = caption_pictures(
            captioner,
            dataset,
            path,
            batch_size=batch_size or 32,
            scorer=load_scorer(scorer, place) if scorer else None,
            overwrite=overwrite,
            replace_edited=replace_edited,
            **request,
        )
        if path != Path("-") and not (texts and texts.printed):
            say(f"{summary.written:,} captions written, {summary.already:,} already done, {summary.empty:,} are empty")
        for line in (*summary.lines(), *dataset.report()):
            say(line)
        dataset.refuse_mostly_unreadable()


def _caption_by_server(
    model: str,
    dataset: Dataset,
    out: Path | None,
    format: str | None,
    decoding: Decoding,
    concurrency: int | None,
    options: dict[str, Any],
) -> None:
    from tellapart.inference.server import CONCURRENCY, caption_by_server

    if decoding.kind == "beam":
        decoding = decoding.model_copy(update={"kind": "greedy"})
    options["concurrency"] = concurrency or CONCURRENCY
    summary = caption_by_server(model, dataset, out, decoding=decoding, format=format, **options)
    say(f"{summary.written:,} captions written, {summary.already:,} already done, {len(summary.failed):,} failed")
    for line in summary.lines():
        say(line)
    for line in dataset.report():
        say(line)
    summary.refuse_unanswered()
    dataset.refuse_mostly_unreadable()


def _with_option(model: str, key: str, value: str) -> str:
    """The captioner's name with one more option. Raises `UsageError` where it has that already."""
    options = model.partition("?")[2]
    if any(pair.startswith(f"{key}=") for pair in options.split("&")):
        raise UsageError(f"{model} names a {key}; leave --{key} out, or that")
    return f"{model}{'&' if options else '?'}{key}={value}"


def _destination(out: str | None, format: str | None, dataset: Dataset) -> tuple[Path | None, str | None]:
    """The file, and the format; the one caption of a single picture is printed where no file is named."""
    if out is None and format is None and len(dataset) == 1:
        return Path("-"), "txt"
    return (None if out is None else Path(out)), format


def _refuse(options: dict[str, Any], why: str) -> None:
    """Raise `UsageError` for an option that is given and would have no effect."""
    for option, value in options.items():
        if value is not None:
            raise UsageError(f"{option} {why}; leave it out")


def weight_of_scorer(weight: float | None, scorer: str | None, consensus: int | None) -> float:
    """Returns how much a scorer counts in a consensus; 0 where there is no such choice."""
    from tellapart.models.decoding import SCORER_WEIGHT

    if consensus is None or scorer is None:
        _refuse({"--scorer-weight": weight}, "is for --consensus 48 --scorer MODEL")
        return 0.0
    return SCORER_WEIGHT if weight is None else weight


def caption_decoding(
    beams: int | None,
    max_tokens: int,
    best_of: int | None,
    samples: int | None,
    temperature: float | None,
    consensus: int | None = None,
    default: Decoding | None = None,
) -> Decoding:
    """Returns the decoding settings of ``caption``: those of the options, else the ``default`` of the model.

    Raises `UsageError` for an option that would have no effect.
    """
    from tellapart.models.decoding import Decoding

    rule: Any = "new" if default is None else default.length_penalty_over
    if consensus is not None:
        others = {"--beams": beams, "--best-of": best_of, "--samples": samples}
        _refuse(others, f"is another way to write captions than --consensus {consensus}")
        drawn = 0.6 if temperature is None else temperature
        return Decoding(kind="consensus", candidates=consensus, temperature=drawn, max_tokens=max_tokens)
    if best_of is not None and samples is not None:
        raise UsageError("--best-of keeps one sample, --samples keeps all; leave one of them out")
    if best_of is None and samples is None:
        if temperature is not None:
            raise UsageError(
                "--temperature is for sampling; type --best-of 10 --scorer MODEL, --consensus 48, or --samples 5"
            )
        if beams is None and default is not None:
            return default.model_copy(update={"max_tokens": max_tokens})
        if beams == 1:
            return Decoding(beams=1, max_tokens=max_tokens)
        return Decoding(kind="beam", beams=beams or 5, length_penalty_over=rule, max_tokens=max_tokens)
    if beams is not None and best_of is not None:
        raise UsageError("--beams has no effect with --best-of, which samples; leave one of them out")
    if beams is not None and samples is not None:
        if temperature is not None:
            raise UsageError("--temperature is for sampling, and --beams 5 --samples 5 keeps beams; leave one out")
        if samples > beams:
            raise UsageError(f"--beams {beams} keeps {beams} captions, fewer than --samples {samples}; raise --beams")
        return Decoding(kind="beam", beams=beams, length_penalty_over=rule, samples=samples, max_tokens=max_tokens)
    return Decoding(kind="sample", samples=samples or 1, temperature=temperature or 1.0, max_tokens=max_tokens)


def caption_job(
    model: str, pictures: Sequence[str], out: str, decoding: Decoding, options: JobOptions, *, batch_size: int,
    features: str | None, replaces: Replace, device: str, precision: str, format: str | None, prompts: Prompts | None,
) -> None:  # fmt: skip
    """Caption by many workers, and join their captions in ``out``."""
    from tellapart.captions.writers import guard_edited, same_models
    from tellapart.inference.caption import caption_request
    from tellapart.jobs.job import SUFFIX, JobRequest
    from tellapart.jobs.works.joined_captions import check_format
    from tellapart.jobs.works.table import merge_job
    from tellapart.utils.files import is_url

    if format is not None and check_format(out) != f".{format}":
        raise UsageError(f"{out}: with --workers the name says the format; leave out --format {format}")
    check_format(out)
    here = Path(model).expanduser()
    place = str(here.absolute()) if here.exists() else model
    at = str(Path(features).expanduser().absolute()) if features is not None else None
    request = caption_request(" ".join(pictures), model, decoding, None, None, features, precision, False, prompts)
    settings = {
        "captioner": place, "decoding": decoding.model_dump(), "batch_size": batch_size, "features": at,
        "device": device, "precision": precision, "code": allowed_code(),
        "prompts": None if prompts is None else f"{out}{SUFFIX}",
    }  # fmt: skip
    deciding = same_models(request)
    own = not is_url(out) and guard_edited(Path(out), replaces)
    with finished_job(
        JobRequest("caption", settings, deciding, None if prompts is None else prompts.by_id), pictures, out, options,
        "captioning", overwrite=replaces.own, suffix=".jsonl", replaces=own,
    ) as (job, before):  # fmt: skip
        counts = told(job)
        count = merge_job(job, out)
    there = f" ({before:,} of {job.shards:,} shards already done)" if before else ""
    say(f"{count:,} captions written{there}, {counts.get('empty', 0):,} are empty")
    refuse_mostly_unreadable(counts)
