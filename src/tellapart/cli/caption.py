"""``tellapart caption``: write captions of pictures.

``tellapart caption --workers N``: the job, and the file as the plain command would have written it.
``tellapart caption --for PURPOSE``: alt text, and captions for fine-tuning an image generator (`PurposeOptions`).
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

import typer

from tellapart.cli.app import MEASURING, App, Device, InferencePrecision, JobOptions, show
from tellapart.cli.workers import finished_job, refuse_mostly_unreadable, told
from tellapart.errors import UsageError, nearest
from tellapart.utils.files import check_output, write_output
from tellapart.utils.io import say, stdout_errors
from tellapart.utils.registry import LazyModule, allowed_code

if TYPE_CHECKING:
    from tellapart.captioners import Captioner
    from tellapart.data import Dataset
    from tellapart.inference import purposes
    from tellapart.inference.prompts import Prompts
    from tellapart.inference.purposes import AltText, Edited, LoraCaptions, OwnFiles, WordShare
    from tellapart.models.decoding import Decoding
    from tellapart.types import Item
else:
    purposes = LazyModule("tellapart.inference.purposes")


PANEL = "For a purpose"
ALT_TEXT, LORA = "alt-text", "lora"
OF = {
    ALT_TEXT: ("characters", "long", "review", "embed", "copies"),
    LORA: (
        "trigger",
        "extension",
        "common",
        "keep",
        "avoid",
        "include",
        "prefix",
        "suffix",
        "length_mix",
        "seed",
        "dry_run",
    ),
}
OF_SETS = {"near", "neighbour", "repeated", "template"}  # kinds of damage that say nothing of one alt text
SHOWN = 20  # words of the table, examples below it, and pictures by name


@dataclass(frozen=True)
class PurposeOptions:
    """The options that make texts for a purpose of captions."""

    purpose: Annotated[
        str | None,
        typer.Option("--for", metavar="PURPOSE", help="alt-text, or lora: a folder for an image generator.",
                     rich_help_panel=PANEL),
    ] = None  # fmt: skip
    characters: Annotated[
        int | None, typer.Option(min=20, help="Longest alt text. Default: 125.", rich_help_panel=PANEL)
    ] = None
    long: Annotated[
        bool, typer.Option("--long", help="Also the whole caption, where it says more.", rich_help_panel=PANEL)
    ] = False
    review: Annotated[
        Path | None,
        typer.Option(help="List alt texts to look at, with the doubts: .jsonl, or a page to edit them on: .html.",
                     dir_okay=False, rich_help_panel=PANEL),
    ] = None  # fmt: skip
    embed: Annotated[
        bool,
        typer.Option("--embed", help="Write alt texts into PICTURE.xmp beside each (IPTC).", rich_help_panel=PANEL),
    ] = False
    copies: Annotated[
        Path | None,
        typer.Option(help="Write copies of the pictures, alt texts inside, to this folder.", file_okay=False,
                     rich_help_panel=PANEL),
    ] = None  # fmt: skip
    trigger: Annotated[
        str | None, typer.Option(help="What the generator is to call what is common.", rich_help_panel=PANEL)
    ] = None
    common: Annotated[
        float | None,
        typer.Option(min=0.1, max=1.0, help="Leave out words of more than this share of captions. Default: 0.5.",
                     rich_help_panel=PANEL),
    ] = None  # fmt: skip
    keep: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Never leave these out: hat,red.", rich_help_panel=PANEL)
    ] = None
    avoid: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Always leave these out.", rich_help_panel=PANEL)
    ] = None
    include: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Add these where they are missing.", rich_help_panel=PANEL)
    ] = None
    extension: Annotated[
        str | None, typer.Option(help="Of the text files: .caption. Default: .txt.", rich_help_panel=PANEL)
    ] = None
    prefix: Annotated[str | None, typer.Option(help="Before the trigger.", rich_help_panel=PANEL)] = None
    suffix: Annotated[str | None, typer.Option(help="After each caption.", rich_help_panel=PANEL)] = None
    length_mix: Annotated[
        str | None,
        typer.Option(metavar="SHARES", help="Of short, medium and long captions: 0.2,0.5,0.3.", rich_help_panel=PANEL),
    ] = None
    seed: Annotated[int | None, typer.Option(min=0, help="Of --length-mix. Default: 0.", rich_help_panel=PANEL)] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be left out; write no text.", rich_help_panel=PANEL)
    ] = False

    @contextlib.contextmanager
    def texts(
        self, dataset: Dataset, out: str | None, format: str | None, overwrite: bool, samples: int | None = None
    ) -> Iterator[Texts | None]:
        """Yields where captions are to be written, and makes texts of them afterwards; None without a purpose.

        Raises `UsageError` for options of another purpose, and for files that are not to be replaced.
        """
        maker = self.maker()
        if maker is None:
            yield None
            return
        from tellapart.data.caption_files import METADATA_FILES
        from tellapart.inference.caption import name_in

        items = list(dataset)
        alone = self.purpose == LORA and out is None
        if out is None and self.purpose == ALT_TEXT and len(items) == 1:
            out = "-"
        if out == "-" and self.purpose == LORA:
            raise UsageError("--for lora looks at all captions; leave out -o -, or type --dry-run to see examples")
        if format is not None:
            raise UsageError(f"--for {self.purpose} has formats of its own; leave out --format")
        if out is None and not alone:
            raise UsageError("no file to write alt texts to; type -o alt.jsonl, or -o - to print them")
        with contextlib.ExitStack() as stack:
            if out == "-":
                path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "alt.jsonl"
            else:
                path = purposes.common_folder(items) / "metadata.jsonl" if out is None else Path(out)
            packed = sorted(purposes.PACKED) if self.purpose == LORA else []
            if (suffix := path.suffix.lower()) not in (".jsonl", ".csv", *packed):
                raise UsageError(
                    f"{path}: texts go to a .jsonl or .csv file" + "".join(f", or {one}" for one in packed)
                )
            if self.extension is not None and not alone:
                raise UsageError(
                    f"--extension is of text files beside the pictures, and -o {out} is one file; leave it out"
                )
            if suffix == ".csv" and samples is not None:
                raise UsageError(
                    f"{path}: has one text of each picture, and {samples} are asked for; type -o texts.jsonl"
                )
            if self.review is not None and self.review.suffix.lower() == ".html" and suffix != ".jsonl":
                raise UsageError(f"{path}: the page of --review writes lines of JSON; type -o alt.jsonl")
            made = Texts(self, maker, items, path, overwrite, purposes.OwnFiles.open(path), alone, out == "-")
            if self.purpose == ALT_TEXT and not overwrite:
                purposes.with_edits(path, {}, made.own)  # a file of another origin, before anything is captioned
            elif not self.dry_run:
                purposes.refuse_foreign(path, made.own, overwrite)
            if self.review is not None:
                check_output(self.review)
            if self.embed:
                purposes.check_embed(items, None)
            if self.copies is not None:
                purposes.check_embed(items, self.copies)
            if path.name in METADATA_FILES:
                for item in items:
                    name_in(item, path.parent)
            made.written = purposes.written_file(path)
            yield made
            made.write(dataset)

    def maker(self) -> AltText | LoraCaptions | None:
        """Returns what makes texts of captions; None without a purpose. Raises `UsageError`."""
        if self.purpose is not None and self.purpose not in OF:
            raise UsageError(f"--for {self.purpose}: expected {' or '.join(OF)}{nearest(self.purpose, OF)}")
        for each in fields(self):
            other = next((name for name, names in OF.items() if each.name in names and name != self.purpose), None)
            if other is not None and getattr(self, each.name) not in (None, False):
                option = f"--{each.name.replace('_', '-')}"
                raise UsageError(f"{option} is of --for {other}; type that too, or leave it out")
        if self.purpose is None:
            return None

        if self.purpose == ALT_TEXT:
            return purposes.AltText(self.characters or purposes.CHARACTERS, self.long)
        if not (self.trigger or "").strip():
            raise UsageError("--for lora needs the word that the generator is to learn; type --trigger NAME")
        if self.seed is not None and self.length_mix is None:
            raise UsageError("--seed is of --length-mix; leave it out")
        if self.extension is not None and f".{self.extension.lstrip('.')}" not in (".txt", ".caption"):
            raise UsageError(f"--extension {self.extension}: expected .txt or .caption")
        keep, avoid = _words(self.keep, "--keep"), _words(self.avoid, "--avoid")
        include = tuple(dict.fromkeys(" ".join(one.split()) for one in (self.include or "").split(",") if one.strip()))
        made = purposes.LoraCaptions(
            " ".join((self.trigger or "").split()),
            purposes.COMMON if self.common is None else self.common,
            keep,
            avoid,
            " ".join((self.prefix or "").split()),
            (self.suffix or "").strip(),
            _shares(self.length_mix),
            self.seed or 0,
            include,
        )
        if both := sorted(made.kept & avoid):
            raise UsageError(f"'{both[0]}' is to stay, and --avoid leaves it out; leave it out of one of them")
        return made


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
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start again and replace what is there.")] = False,
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
    from tellapart.data.dataset import open_many
    from tellapart.inference.prompts import Prompts, has_fields
    from tellapart.inference.server import MAX_TOKENS, open_server
    from tellapart.models.decoding import DEFAULT
    from tellapart.models.names import is_server
    from tellapart.models.saved import default_decoding
    from tellapart.utils.io import is_url

    served = is_server(model)
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
        with purpose.texts(dataset, out, format, overwrite, samples) as texts:
            path, format = _destination(out, format, dataset) if texts is None else (texts.written, "jsonl")
            chosen: dict[str, Any] = {"best_of": best_of, "drop_guesses": drop_guesses}
            if scorer is not None:
                from tellapart.models.devices import resolve_device
                from tellapart.scorers.load import load_scorer

                chosen["scorer"] = load_scorer(scorer, resolve_device(device))
            chosen |= {"ledger": ledger, "overwrite": overwrite}
            chosen["prompts"] = Prompts.read(open_server(model)[1], dataset, fields)
            _caption_by_server(model, dataset, path, format, decoding, concurrency, chosen)
        return
    _refuse({"--concurrency": concurrency, "--ledger": ledger}, "is of a model behind a server (openai:MODEL@URL)")
    from tellapart.captioners.load import load_captioner
    from tellapart.inference.caption import caption_pictures, nothing_left, recorded_precision
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
            overwrite=overwrite, device=device, precision=precision, format=format, prompts=prompts,
        )  # fmt: skip
        return
    if out is not None and is_url(out):
        raise UsageError(f"{out}: an address, to which a job writes; add --workers 1, or name a file on disk")
    dataset = open_many(pictures)
    place = resolve_device(device)
    with purpose.texts(dataset, out, format, overwrite, samples) as texts:
        path, format = _destination(out, format, dataset) if texts is None else (texts.written, "jsonl")
        if precision == "auto" and not overwrite:
            precision = recorded_precision(path) or precision
        precision = resolve_precision(precision, place)
        if texts is not None:
            texts.captioner = lambda: load_captioner(model, place, precision)
        request: Any = {"decoding": decoding, "format": format, "best_of": best_of, "features": features}
        request |= {"drop_guesses": drop_guesses, "prompts": template and Prompts.read(template, dataset, fields)}
        if not overwrite and nothing_left(dataset, path, model, scorer=scorer, precision=precision, **request):
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
            **request,
        )
        if out is not None or path is None:  # else it was printed
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
    features: str | None, overwrite: bool, device: str, precision: str, format: str | None, prompts: Prompts | None,
) -> None:  # fmt: skip
    """Caption by many workers, and join their captions in ``out``."""
    from tellapart.inference.caption import caption_request, settings_file
    from tellapart.jobs.job import SUFFIX, JobRequest
    from tellapart.jobs.works import check_format, merge_job, write_pictures
    from tellapart.utils.io import is_url, replace_text

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
    deciding = {key: value for key, value in request.items() if key != "data"}
    with finished_job(
        JobRequest("caption", settings, deciding, None if prompts is None else prompts.by_id), pictures, out, options,
        "captioning", overwrite=overwrite, suffix=".jsonl", replaces=False,
    ) as (job, before):  # fmt: skip
        counts = told(job)
        count = merge_job(job, out)
        if not is_url(out) and Path(out).suffix.lower() in (".jsonl", ".csv"):  # the plain command knows the file again
            known = request | (job.value.get("models") or {})
            replace_text(settings_file(Path(out)), json.dumps(known, indent=1, sort_keys=True) + "\n")
            write_pictures(job, Path(out))
    there = f" ({before:,} of {job.shards:,} shards already done)" if before else ""
    say(f"{count:,} captions written{there}, {counts.get('empty', 0):,} are empty")
    refuse_mostly_unreadable(counts)


def _words(typed: str | None, option: str) -> frozenset[str]:
    words = frozenset(word.strip().lower() for word in (typed or "").split(",") if word.strip())
    if wrong := next((word for word in sorted(words) if " " in word), None):
        raise UsageError(f"{option} {wrong!r}: expected single words with commas between, such as hat,red")
    return words


def _shares(typed: str | None) -> tuple[float, float, float] | None:
    if typed is None:
        return None
    try:
        short, medium, long = (float(part) for part in typed.split(","))
    except ValueError:
        short = medium = long = -1.0
    if min(short, medium, long) < 0 or not 0.99 <= short + medium + long <= 1.01:
        raise UsageError(f"--length-mix {typed}: expected three shares that add up to 1, such as 0.2,0.5,0.3")
    return short, medium, long


@dataclass
class Texts:
    """The texts for a purpose: where they go, and the file of the captions that they are made of (``written``).

    ``captioner``: loads the captioner for a second look; None for one behind a server.
    """

    options: PurposeOptions
    maker: AltText | LoraCaptions
    items: Sequence[Item]
    out: Path
    overwrite: bool
    own: OwnFiles
    beside: bool  # a .txt beside each picture, too
    printed: bool
    written: Path = field(default_factory=Path)
    captioner: Callable[[], Captioner] | None = None

    @property
    def suffix(self) -> str:
        """Returns how files beside the pictures end."""
        return f".{(self.options.extension or 'txt').lstrip('.')}"

    def write(self, dataset: Dataset) -> None:
        """Makes the texts and writes them."""

        written = purposes.read_written(self.written)
        captions = {
            f"{item.id}\n{n}" if n else item.id: text
            for item in self.items
            for n, text in enumerate(written.get(item.id, ()))
        }
        single = self.maker.edited(captions)
        edited = purposes.several(single)
        for line in _without_text(edited):
            say(line)
        if self.options.purpose == LORA:
            self._show_evidence(captions, single, len(edited))
        if self.options.dry_run:
            say(f"nothing is written yet; the captions are in {self.written}, and the same command without --dry-run "
                "goes on with them")  # fmt: skip
            return
        changed: set[str] = set()
        if self.options.purpose == ALT_TEXT and not self.overwrite:
            edited, changed = purposes.with_edits(self.out, edited, self.own)
            if changed:
                say(f"{len(changed):,} texts were changed in {self.out} since: they stay; --overwrite replaces them")
        if self.printed:
            with stdout_errors():
                sys.stdout.write(purposes.json_lines(self.items, edited))
        else:
            stayed = 0
            if self.beside:
                edited, stayed = purposes.write_beside(self.items, edited, self.own, self.overwrite, self.suffix)
            count = purposes.write_lines(self.out, self.items, edited, self.own, changed)
            say(
                f"{count:,} texts in {self.out}"
                + (f" and in a {self.suffix} beside each picture" if self.beside else "")
            )
            if stayed:
                say(f"{stayed:,} {self.suffix} files are not of this command, or were changed since: they stay, and "
                    "their text counts; --overwrite replaces them")  # fmt: skip
        if self.options.embed or self.options.copies is not None:
            self._embed(edited)
        if self.options.review is not None:
            self._review(dataset, captions, edited, self.options.review)

    def _embed(self, edited: dict[str, Edited]) -> None:

        places = [None] if self.options.embed else []
        for folder in [*places, *([self.options.copies] if self.options.copies is not None else [])]:
            done = purposes.embed(self.items, edited, self.own, self.overwrite, folder)
            where = "beside the pictures" if folder is None else f"in {folder}"
            copies = f"{done.copies:,} copies of pictures and " if folder is not None else ""
            say(f"{copies}{done.sidecars:,} .xmp files {where}")
            if done.stayed:
                say(f"{len(done.stayed):,} pictures have an alt text of another origin, which stays: "
                    f"{', '.join(done.stayed[:3])}; --overwrite replaces it")  # fmt: skip

    def _show_evidence(self, captions: dict[str, str], edited: dict[str, Edited], pictures: int) -> None:

        assert isinstance(self.maker, purposes.LoraCaptions)
        shares = self.maker.evidence(captions)
        shown = [one for n, one in enumerate(shares) if one.left_out or n < SHOWN]
        pairs = [(captions[key], one.text) for key, one in edited.items() if one.text]
        show(None, lambda: _evidence_table(shown, len(captions)), False)
        if pictures < purposes.LEAST:
            say(f"{pictures} captions are no evidence of what a set has in common; only --avoid leaves words out")
        for before, after in pairs[: SHOWN if self.options.dry_run else 3]:
            say(f"{before} → {after}")

    def _review(self, dataset: Dataset, captions: dict[str, str], edited: dict[str, Edited], path: Path) -> None:
        from tellapart.data.caption_matching import CaptionFile
        from tellapart.evaluation.check import CAPTION, KINDS, check_captions

        texts = {key: [one.text] for key, one in edited.items() if one.text}
        found: dict[str, list[tuple[str, str]]] = {}
        if texts:
            captioner = self.captioner() if self.captioner is not None and len(texts) > 1 else None
            checked = check_captions(CaptionFile(self.out.name, texts), dataset, captioner=captioner)
            for kind, findings in checked.found.items():
                if KINDS[kind].of == CAPTION and kind not in OF_SETS:
                    for one in findings:
                        found.setdefault(one.id, []).append((kind, one.detail))
        lines = purposes.review_lines(self.items, captions, edited, found)
        if path.suffix.lower() == ".html":
            purposes.write_review_page(
                path, self.out, self.items, edited, lines, self.options.characters or purposes.CHARACTERS
            )
        else:
            write_output(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        say(f"{len(lines):,} of {len(self.items):,} pictures are to be looked at: {path}")


def _without_text(edited: dict[str, Edited]) -> Iterator[str]:
    bad = [(key, one.doubts[0][1]) for key, one in edited.items() if not one.text]
    yield from (f"no text for {key}: its caption is {why}" for key, why in bad[:SHOWN])
    if len(bad) > SHOWN:
        yield f"no text for {len(bad) - SHOWN:,} more"


def _evidence_table(shares: Sequence[WordShare], captions: int) -> Any:
    from rich import box
    from rich.table import Table

    title = f"words of {captions:,} captions"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("word")
    table.add_column("captions", justify="right")
    table.add_column("%", justify="right")
    table.add_column("")
    for one in shares:
        style = "bold" if one.left_out else ""
        table.add_row(one.word, f"{one.count:,}", f"{100 * one.share:.0f}", "left out" if one.left_out else "stays",
                      style=style)  # fmt: skip
    return table
