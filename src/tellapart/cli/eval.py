"""``tellapart eval``: measure caption files; ``eval headroom``: how much of what a captioner knows its captions say."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tellapart.cli.app import MEASURING, App, Device, ExactPrecision, Json, WorkerOptions, show
from tellapart.cli.workers import encode_ahead
from tellapart.errors import UsageError
from tellapart.evaluation.options import EvalOptions, JudgeInputs
from tellapart.utils.files import check_output, write_output
from tellapart.utils.messages import say, stdout_errors, typed_command

if TYPE_CHECKING:
    from rich.table import Table

    from tellapart.evaluation.headroom import Headroom, Interval
    from tellapart.metrics.results import Results

app = App()


@app.command(name="eval", rich_help_panel=MEASURING)
def evaluate(
    options: EvalOptions,
    *,
    captioner: Annotated[
        list[str] | None,
        typer.Option(
            help="A captioner, which writes captions of --data first: a name, or openai:MODEL@URL. Repeatable."
        ),
    ] = None,
    judge: JudgeInputs,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the result: .json, .csv, .md, .tex, or .txt.", dir_okay=False),
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="table, markdown, latex, csv, or json. Default: as -o ends, else a table.")
    ] = None,
    per_caption: Annotated[
        Path | None, typer.Option("--per-caption", help="Write each caption's scores: .jsonl or .csv.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page, with a gallery where --data has the pictures: .html.")
    ] = None,
    device: Device = "auto",
    precision: ExactPrecision = "auto",
    job: WorkerOptions,
    as_json: Json = False,
) -> None:
    """Measure captions: retrieval among similar pictures, agreement with references, diversity, truth."""
    from tellapart.evaluation import formats
    from tellapart.evaluation.inputs import run_eval

    metrics = options.metrics
    names = None if metrics is None else [name.strip() for name in ",".join(metrics).split(",") if name.strip()]
    if names is not None and [name.lower() for name in names] == ["list"]:
        show_metrics(as_json)
        return
    check_inputs(options, captioner, names)
    if as_json and format not in (None, "json") and out is None:
        raise UsageError(f"--json and --format {format} contradict each other; leave one of them out")
    chosen_format = formats.format_of(out, format)
    for path, suffixes in ((out, ()), (per_caption, (".jsonl", ".csv")), (report, (".html", ".htm"))):
        if path is not None:
            check_output(path, *suffixes)
    options = replace(options, metrics=names, device=device, precision=precision, judge=judge)
    if job.wanted:
        encode_pictures(options, job, out)
    if captioner:
        options = with_captions_of(captioner, options)
    results = run_eval(options)
    if out is not None:
        write_output(out, formats.FORMATS[chosen_format](results))
    if per_caption is not None:
        write_output(per_caption, formats.per_caption(results, per_caption))
    if report is not None:
        formats.write_eval_page(results, report, typed_command(), results.extra["items"])
    if out is None and format is not None and chosen_format != "json":
        with stdout_errors():
            print(formats.FORMATS[chosen_format](results), end="")
    else:
        show_results(results, as_json or (out is None and chosen_format == "json"), five=names is None)
    for label, path in (("result", out), ("per caption", per_caption), ("report", report)):
        if path is not None:
            say(f"{label}: {path}")


def show_metrics(as_json: bool) -> None:
    """Prints all metrics: ``--metrics list``."""
    from tellapart.evaluation.selection import list_metrics, metric_table

    found = list_metrics()
    show({"metrics": [metric.to_json() for metric in found]}, lambda: metric_table(found), as_json)


def check_inputs(options: EvalOptions, captioner: list[str] | None, names: list[str] | None) -> None:
    """Raises `UsageError` where there is nothing to measure, or no metric."""
    if not options.captions and not captioner and (options.human is None or options.data is None):
        raise UsageError("Missing option '--captions'; type: tellapart eval --help")
    if captioner and options.data is None:
        raise UsageError("--captioner writes captions of pictures; add --data SPEC, or type --captions FILE")
    if names == []:
        raise UsageError(
            "--metrics names none; type --metrics length,clipscore, or --metrics all for all that the inputs allow"
        )


def encode_pictures(options: EvalOptions, job: WorkerOptions, out: Path | None) -> None:
    """Lets workers encode the pictures for the scorers."""
    if options.data is None or options.scorer is None:
        raise UsageError("--workers encode the pictures of --data for --scorer; type both, or leave out --workers")
    specs = [[spec] for spec in (options.data, options.distractors) if spec is not None]
    models, place = [options.scorer, *(options.eval_scorers or ())], None if out is None else str(out)
    encode_ahead(models, specs, place, job, device=options.device, precision=options.precision)


def with_captions_of(captioners: list[str], options: EvalOptions) -> EvalOptions:
    """Returns the options with captions that these captioners write of the data."""
    from tellapart.inference.server import captions_of

    # --precision is of metrics, which are exact by default; captions are written as `caption` writes them.
    files = [captions_of(name, str(options.data), options.device) for name in captioners]
    options = replace(options, captions=[*(options.captions or ()), *files])
    if not (options.scorer or options.language_model or options.bertscore) and options.precision == "auto":
        return replace(options, device="auto")  # was the captioner's; text metrics refuse one
    return options


def show_results(results: Results, as_json: bool, *, five: bool) -> None:
    """Prints the results. five: of the table the main metrics only."""
    from tellapart.evaluation.selection import main_metrics
    from tellapart.metrics.results import WORDS

    only = main_metrics(key for key in results.signatures if key != WORDS) if five else None
    show(results.to_json(), partial(results.table, only=only, signatures=True), as_json)


@app.command("eval headroom", hidden=True)
def headroom(
    model: Annotated[str, typer.Argument(help="A captioner: folder, run, hub name, or 'scenes'.")],
    pictures: Annotated[list[str], typer.Argument(help="Data sets as kind:path?key=value, with references or scenes.")],
    samples: Annotated[int, typer.Option(min=1, metavar="N", help="Sampled captions of each picture.")] = 10,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest caption, in tokens.")] = 40,
    seed: Annotated[int, typer.Option(min=0, help="Of the samples.")] = 0,
    as_json: Json = False,
    device: Device = "auto",
) -> None:
    """Rank what a captioner states of pictures by its own confidence, and see how much of it its captions say.

    Prints precision and recall of the greedy captions beside what the captioner could state at the same precision. On
    scenes claims are compared with the scenes themselves, elsewhere words with the words of the references.
    """
    from tellapart.captioners import load_captioner
    from tellapart.data import open_many
    from tellapart.evaluation.headroom import measure_headroom
    from tellapart.features.store import FeatureStore
    from tellapart.features.views import make_view
    from tellapart.models.devices import resolve_device

    captioner, dataset = load_captioner(model, resolve_device(device), "fp32"), open_many(pictures)
    view = make_view(captioner, FeatureStore())
    items = view.readable(dataset, dataset.unreadable)
    found = measure_headroom(captioner, items, view.rows(items), samples=samples, max_tokens=max_tokens, seed=seed)
    show(found.to_json(), lambda: headroom_table(found, model), as_json)
    for line in dataset.report():
        say(line)


def headroom_table(found: Headroom, model: str) -> Table:
    """For the terminal: the greedy captions, and points of the curve."""
    from rich.table import Table

    from tellapart.evaluation.headroom import LEVELS

    greedy = found.greedy()
    shown = Table(title=f"{model}: {len(found.facts_N):,} pictures, by {found.truth}; 95 % intervals over pictures")
    for name in ("claims", "precision, %", "recall, %"):
        shown.add_column(name, justify="left" if name == "claims" else "right")
    shown.add_row("of the greedy captions", _cell(greedy.precision), _cell(greedy.recall))
    shown.add_row("at their precision", f"{greedy.precision[0]:.1f}", _cell(found.recall_at(greedy.precision[0])))
    for level in LEVELS:
        shown.add_row(f"at a precision of {level}", f"{level:.1f}", _cell(found.recall_at(level)))
    return shown


def _cell(value: Interval) -> str:
    return f"{value[0]:.1f} [{value[1]:.1f}, {value[2]:.1f}]"
