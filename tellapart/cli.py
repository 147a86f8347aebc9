"""The command line: thin. Each verb says what it needs, and hands over."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tellapart.errors import TellapartError

app = typer.Typer(
    name="tellapart",
    help="Teach an image captioner to say what tells a picture apart, and measure honestly whether it does.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, and nothing else there.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, as in training.steps=200. Repeatable."),
]


@app.callback(invoke_without_command=True)
def common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    if version:
        from tellapart import __version__

        print(__version__)
        raise typer.Exit


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe, such as recipes/scenes_sr.toml.")],
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder. Default: runs/NAME-FINGERPRINT.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run stopped.")] = False,
    as_json: Json = False,
) -> None:
    """Train what a recipe says, measure it before and after, write the report."""
    from tellapart.recipe import read_recipe
    from tellapart.train import train as run_training

    run = run_training(read_recipe(recipe, settings or []), out, resume=resume)
    show_run(run.folder, as_json)


@app.command()
def caption(
    model: Annotated[str, typer.Argument(help="A captioner: folder, run, hub name, or 'scenes'.")],
    pictures: Annotated[list[str], typer.Argument(help="Folders, picture files, or data sets as kind:path?key=value.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="captions.jsonl or captions.csv. Not with --format txt."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(help="jsonl, csv, or txt: a .txt beside each picture. Default: as -o ends."),
    ] = None,
    beams: Annotated[int, typer.Option(help="Beam search with so many beams; 1 is greedy.")] = 5,
    max_tokens: Annotated[int, typer.Option(help="Longest caption, in tokens.")] = 30,
    best_of: Annotated[
        int | None,
        typer.Option("--best-of", metavar="N", help="Sample N captions, keep the one that tells best."),
    ] = None,
    temperature: Annotated[float, typer.Option(help="Of the samples of --best-of.")] = 1.0,
    scorer: Annotated[str | None, typer.Option(help="The scorer of --best-of: folder, run, or hub name.")] = None,
    batch_size: Annotated[int, typer.Option(help="Pictures at once.")] = 32,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin anew; replace what is there.")] = False,
) -> None:
    """Caption pictures. Type the same command again to go on after an interruption."""
    from tellapart.caption import caption_pictures
    from tellapart.captioners import load_captioner
    from tellapart.data import open_many
    from tellapart.decode import Decoding
    from tellapart.messages import say
    from tellapart.scorers import load_scorer

    dataset = open_many(pictures)
    kind = "sample" if best_of else "beam" if beams > 1 else "greedy"
    summary = caption_pictures(
        load_captioner(model),
        dataset,
        out,
        decoding=Decoding(kind=kind, beams=beams, temperature=temperature, max_tokens=max_tokens),
        batch_size=batch_size,
        format=format,
        best_of=best_of,
        scorer=load_scorer(scorer) if scorer else None,
        overwrite=overwrite,
    )
    say(f"{summary.written:,} captions written, {summary.already:,} were there, {summary.empty:,} are empty")
    for line in dataset.report():
        say(line)


@app.command(name="eval")
def evaluate(
    captions: Annotated[list[Path], typer.Option(help="JSONL, CSV, COCO results, or a caption a line. Repeatable.")],
    references: Annotated[Path | None, typer.Option(help="COCO, Karpathy, JSONL, or tab-separated.")] = None,
    data: Annotated[str | None, typer.Option(help="The pictures, as kind:path?split=test.")] = None,
    scorer: Annotated[str | None, typer.Option(help="Scorer: folder, run, hub name, or 'scenes'.")] = None,
    judge: Annotated[list[str] | None, typer.Option(help="A further scorer, measured too. Repeatable.")] = None,
    metrics: Annotated[str | None, typer.Option(help="Names, with commas. Default: all there are.")] = None,
    human: Annotated[
        str | None,
        typer.Option(help="Score references as a system too: first, random, or mean."),
    ] = None,
    chance: Annotated[bool, typer.Option("--chance", help="Add random chance as a system.")] = False,
    lookalike: Annotated[int, typer.Option(help="Pictures in a look-alike set.")] = 10,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples behind each interval.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Score the ids that all files have.")] = False,
    as_json: Json = False,
) -> None:
    """Measure captions: do they tell pictures apart, and what are they like?"""
    from tellapart.evaluate import run_eval

    results = run_eval(
        captions,
        references,
        data,
        scorer,
        [name.strip() for name in metrics.split(",") if name.strip()] if metrics is not None else None,
        judges=judge or (),
        human=human,
        chance=chance,
        lookalike=lookalike,
        resamples=resamples,
        seed=seed,
        allow_missing=allow_missing,
    )
    show(results.to_json(), results.table(), as_json)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Default: RUN/report.html.")] = None,
) -> None:
    """Write the HTML page of one run, or of several side by side."""
    from tellapart.report import build_report

    print(build_report(runs, out))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/demo"),
    as_json: Json = False,
) -> None:
    """Teach the small captioner of the embedded world to tell look-alikes apart, in two minutes."""
    from tellapart.demo import run_demo

    run_demo(out)
    show_run(out, as_json)


@app.command()
def cache(
    empty: Annotated[bool, typer.Option("--empty", help="Drop everything.")] = False,
    as_json: Json = False,
) -> None:
    """Where encoded pictures are kept, how much there is, and how to be rid of it."""
    from tellapart.cache import describe_cache, empty_cache

    if empty:
        print(empty_cache())
    else:
        show(*describe_cache(), as_json)


def show(value: Any, table: Any, as_json: bool) -> None:
    """A result as JSON alone, or as a table for people."""
    if as_json:
        import json

        print(json.dumps(value, ensure_ascii=False))
    else:
        from rich.console import Console

        Console().print(table)


def show_run(folder: Path, as_json: bool) -> None:
    """A finished run's table and where its report lies."""
    import json

    from tellapart.comparison import results_from_json
    from tellapart.messages import say

    path = folder / "results.json"
    empty: dict[str, Any] = {"systems": {}, "pairs": [], "signatures": {}}
    value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else empty
    show(value, results_from_json(value).table(without=("human", "chance")), as_json)
    for what, file in (("model", folder / "model"), ("report", folder / "report.html")):
        if file.exists():
            say(f"{what}: {file}")


def main() -> None:
    """Run a command; a `TellapartError` is one line, Ctrl-C leaves what is on disk resumable."""
    debug = "--debug" in sys.argv[1:]
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        app(args=arguments, prog_name="tellapart")
    except TellapartError as error:
        if debug:
            raise
        print(f"tellapart: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        again = "the same command goes on (train: with --resume)"
        print(f"tellapart: stopped; what was saved stays, and {again}", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        if debug:
            raise
        print(f"tellapart: {error.filename or ''} {error.strerror or error}; see --debug for where", file=sys.stderr)
        sys.exit(1)
