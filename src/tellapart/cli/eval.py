"""``tellapart eval``: measures caption files, and how much of its knowledge a captioner states (headroom)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.app import MEASURING, App
from tellapart.cli.options import Device, ExactPrecision, Json
from tellapart.cli.output import show
from tellapart.errors import UsageError
from tellapart.evaluation import formats
from tellapart.evaluation.eval_page import write_eval_page
from tellapart.evaluation.main_metrics import main_metrics
from tellapart.evaluation.metric_list import list_metrics, metric_table
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.run_eval import run_eval
from tellapart.metrics.results import Results
from tellapart.metrics.terminal_table import terminal_table
from tellapart.metrics.typical_words import WORDS_KEY
from tellapart.utils.comma_lists import comma_list
from tellapart.utils.messages import say
from tellapart.utils.outputs import check_output, write_output
from tellapart.utils.tables import table_of
from tellapart.utils.typed_command import typed_command
from tellapart.utils.write_errors import stdout_errors

app = App()


@app.command(name="eval", rich_help_panel=MEASURING)
def evaluate(
    options: EvalOptions,
    *,
    captioner: list[str] | None = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", dir_okay=False)] = None,
    format: str | None = None,
    per_caption: Path | None = None,
    report: Path | None = None,
    device: Device = "auto",
    precision: ExactPrecision = "auto",
    as_json: Json = False,
) -> None:
    """Measure captions: retrieval among similar pictures, agreement with references, diversity, truthfulness.

    Args:
        captioner: Captioner to run on --data before measuring: a name, or openai:MODEL@URL. Repeatable.
        settings: Change an advanced setting; '--set list' shows all. Repeatable.
        out: Output file: .json, .csv, .md, .tex, or .txt.
        format: table, markdown, latex, csv, or json. Default: inferred from the suffix of --out, otherwise table.
        per_caption: Output file for per-caption scores: .jsonl or .csv.
        report: HTML page to write, with a gallery if --data provides pictures.
    """
    names = comma_list(",".join(options.metrics or ()))
    if settings == ["list"] or [name.lower() for name in names] == ["list"]:
        show_keys(as_json) if settings == ["list"] else show_metrics(as_json)
        return
    options = replace(options, device=device, precision=precision).with_keys(settings or ())
    if not options.captions and not captioner and (options.human is None or options.data is None):
        raise UsageError("Missing option '--captions'; see: tellapart eval --help")
    if captioner and options.data is None:
        raise UsageError("--captioner requires pictures; add --data SPEC, or pass --captions FILE instead")
    if options.metrics is not None:
        if not names:
            raise UsageError(
                "--metrics is empty; pass metrics such as length,clipscore, or all for every metric that the inputs "
                "support"
            )
        options = replace(options, metrics=names)
    if as_json and format not in (None, "json") and out is None:
        raise UsageError(f"--json and --format {format} cannot be combined; remove one of them")
    chosen_format = formats.format_of(out, format)
    for path, suffixes in ((out, ()), (per_caption, (".jsonl", ".csv")), (report, (".html", ".htm"))):
        if path is not None:
            check_output(path, *suffixes)
    if captioner:
        from tellapart.inference.captions_file import captions_of

        files = [captions_of(name, str(options.data), device) for name in captioner]
        # The device was used for captioning. The evaluation rejects it if none of its models uses it.
        used = device if options.models or precision != "auto" else "auto"
        options = replace(options, captions=[*(options.captions or ()), *files], device=used)
    results = run_eval(options)
    if out is not None:
        write_output(out, formats.RESULT_FORMATS[chosen_format](results))
    if per_caption is not None:
        write_output(per_caption, formats.per_caption(results, per_caption))
    if report is not None:
        write_eval_page(results, report, typed_command(), results.extra["items"])
    show_results(results, chosen_format if out is None and format is not None else "", as_json, five=not names)
    for label, path in (("result", out), ("per caption", per_caption), ("report", report)):
        if path is not None:
            say(f"{label}: {path}")


def show_results(results: Results, format: str, as_json: bool, *, five: bool) -> None:
    """Prints the results in a format, or as a table in the style of the terminal if ``format`` is "". If ``five`` is
    set, this table contains only the main metrics.
    """
    if format in ("", "json"):
        only = main_metrics(key for key in results.signatures if key != WORDS_KEY) if five else None
        table = partial(terminal_table, results, only=only, signatures=True)
        show(results.to_json(), table, as_json or format == "json")
        return
    with stdout_errors():
        print(formats.RESULT_FORMATS[format](results), end="")


def show_metrics(as_json: bool) -> None:
    """Prints all metrics, for ``--metrics list``."""
    metrics = list_metrics()
    show({"metrics": [metric._asdict() for metric in metrics]}, lambda: metric_table(metrics), as_json)


def show_keys(as_json: bool) -> None:
    """Prints all advanced settings, for ``--set list``."""
    defaults = EvalOptions()
    rows = [(name, str(getattr(defaults, name) or ""), text) for name, (_, text) in EvalOptions.keys().items()]
    value = {name: {"default": default, "help": text} for name, default, text in rows}
    show(value, lambda: table_of(("key", "default", "meaning"), rows), as_json)


@app.command("eval headroom", hidden=True)
def headroom(
    model: str,
    pictures: list[str],
    samples: Annotated[int, typer.Option(min=1, metavar="N")] = 10,
    max_tokens: Annotated[int, typer.Option(min=1)] = 40,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: Json = False,
    device: Device = "auto",
) -> None:
    """Compare the recall of a captioner's captions with the recall it could reach at the same precision.

    Ranks the claims of sampled captions by the captioner's confidence, and prints precision and recall of greedy
    captions. Claims about scenes are verified against the scene, and all other claims against the references' words.

    Args:
        model: Captioner: folder, run, hub name, or 'scenes'.
        pictures: Data sets with references or scenes, as kind:path?key=value.
        samples: Number of sampled captions per picture.
        max_tokens: Maximum caption length, in tokens.
        seed: Random seed for the samples.
    """
    from tellapart.evaluation.headroom import headroom_of

    result, notes = headroom_of(model, pictures, device=device, samples=samples, max_tokens=max_tokens, seed=seed)
    heads = ("claims", "precision, %", "recall, %")
    show(result.to_json(), lambda: table_of(heads, result.rows(), title=result.title(model)), as_json)
    for line in notes:
        say(line)
