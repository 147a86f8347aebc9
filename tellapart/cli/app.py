"""The command line: thin. Each verb says what it needs, and hands over."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tellapart.cli.bags import app as bags_app
from tellapart.cli.boost import app as boost_app
from tellapart.cli.claims import app as claims_app
from tellapart.cli.common import DATA, HOUSEKEEPING, MEASURING, RESEARCH, TRAINING, App
from tellapart.cli.finetune import app as finetune_app
from tellapart.cli.output import Json, Settings, show, show_run
from tellapart.cli.recipes import app as recipes_app
from tellapart.errors import TellapartError, UsageError
from tellapart.models.plugins import OPTION, allow_code, allow_named_in
from tellapart.utils.messages import Verbosity, say, set_verbosity, typed_command
from tellapart.utils.text import for_terminal, single_line

if TYPE_CHECKING:
    from tellapart.models.decoding import Decoding

app = App(
    name="tellapart",
    help="Teach an image captioner to say what tells a picture apart, and measure honestly whether it does.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(bags_app, rich_help_panel=DATA)
app.add_typer(boost_app)
app.add_typer(claims_app)
app.add_typer(finetune_app)
app.add_typer(recipes_app)

# Options that may stand anywhere in the line, by how they are typed.
EVERYWHERE = {name: name for name in ("--debug", "--quiet", "--verbose")} | {"-q": "--quiet"}
INTERRUPTED = 130  # the exit status of a command that Ctrl-C ended


@app.callback(invoke_without_command=True)
def common(
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version and leave.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only results and errors. With every command.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Tell every step. With every command.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error. With every command.")] = False,
    code: Annotated[
        list[str] | None,
        typer.Option(
            OPTION,
            metavar="MODULE:FACTORY",
            help="Let recipes and model folders run this. Repeatable. With every command.",
        ),
    ] = None,
) -> None:
    """Options of `EVERYWHERE` never come here: `main` takes them from any place in the line."""
    if version:
        from tellapart import __version__

        print(__version__)
        raise typer.Exit


@app.command(rich_help_panel=TRAINING)
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe: a TOML file, or a name that 'tellapart recipes' lists.")],
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder. Default: runs/NAME-FINGERPRINT.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run stopped.")] = False,
    adopt: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="Use this run for the recipe of its name, changed though it is. Repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train what a recipe says, measure it before and after, write the report."""
    from tellapart.recipe.find import find_recipe
    from tellapart.recipe.schema import read_recipe
    from tellapart.training.adopt import adoptions
    from tellapart.training.loop import train as run_training

    chosen = read_recipe(find_recipe(recipe), settings or [])
    run = run_training(chosen, out, resume=resume, adopted=adoptions(adopt or [], chosen))
    show_run(run.folder, as_json)


@app.command(rich_help_panel=MEASURING)
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
    beams: Annotated[
        int | None, typer.Option(min=1, help="Beam search with so many beams; 1 is greedy. Default: 5.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest caption, in tokens.")] = 30,
    best_of: Annotated[
        int | None,
        typer.Option("--best-of", metavar="N", min=2, help="Sample N captions, keep the one that tells best."),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            help="Sample N captions, keep all, as diversity is measured on; with --beams the N best.",
        ),
    ] = None,
    temperature: Annotated[float | None, typer.Option(min=0.01, help="Of --best-of and --samples. Default: 1.")] = None,
    scorer: Annotated[str | None, typer.Option(help="The scorer of --best-of: folder, run, or hub name.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures at once.")] = 32,
    features: Annotated[
        str | None, typer.Option(help="Features by item id: a folder of .npz, or .h5. Default: of the pictures.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin anew; replace what is there.")] = False,
) -> None:
    """Caption pictures. Type the same command again to go on after an interruption."""
    from tellapart.captioners import load_captioner
    from tellapart.data import open_many
    from tellapart.inference.caption import caption_pictures, nothing_left
    from tellapart.models.device import best_device
    from tellapart.scorers import load_scorer

    decoding = caption_decoding(beams, max_tokens, best_of, samples, temperature)
    dataset = open_many(pictures)
    asked: Any = {"decoding": decoding, "format": format, "best_of": best_of, "features": features}
    if not overwrite and nothing_left(dataset, out, model, scorer=scorer, **asked):
        say(f"0 captions written, {len(dataset):,} were there")
        for line in dataset.report():
            say(line)
        return
    summary = caption_pictures(
        load_captioner(model, best_device()),
        dataset,
        out,
        batch_size=batch_size,
        scorer=load_scorer(scorer, best_device()) if scorer else None,
        overwrite=overwrite,
        **asked,
    )
    say(f"{summary.written:,} captions written, {summary.already:,} were there, {summary.empty:,} are empty")
    for line in dataset.report():
        say(line)
    dataset.refuse_mostly_unreadable()


def caption_decoding(
    beams: int | None, max_tokens: int, best_of: int | None, samples: int | None, temperature: float | None
) -> Decoding:
    """How ``caption`` decodes. Raises `UsageError` for an option that the others make idle."""
    from tellapart.models.decoding import Decoding

    if best_of is not None and samples is not None:
        raise UsageError("--best-of keeps one sample, --samples keeps all; leave one of them out")
    if best_of is None and samples is None:
        if temperature is not None:
            raise UsageError("--temperature is of samples; type --best-of 10 --scorer MODEL, or --samples 5, with it")
        return Decoding(kind="greedy" if beams == 1 else "beam", beams=beams or 5, max_tokens=max_tokens)
    if beams is not None and best_of is not None:
        raise UsageError("--beams is of no use with --best-of, which samples; leave one of them out")
    if beams is not None and samples is not None:
        if temperature is not None:
            raise UsageError("--temperature is of sampling, and --beams 5 --samples 5 keeps beams; leave one out")
        if samples > beams:
            raise UsageError(f"--beams {beams} keeps {beams} captions, fewer than --samples {samples}; raise --beams")
        return Decoding(kind="beam", beams=beams, samples=samples, max_tokens=max_tokens)
    return Decoding(kind="sample", samples=samples or 1, temperature=temperature or 1.0, max_tokens=max_tokens)


@app.command(name="eval", rich_help_panel=MEASURING)
def evaluate(
    captions: Annotated[
        list[Path] | None,
        typer.Option(help="JSON, JSONL, CSV, Parquet, a caption a line, … (docs/data.md). Repeatable. Required."),
    ] = None,
    references: Annotated[
        list[Path] | None,
        typer.Option(
            help="References, in any layout of --captions or Karpathy's. Several files are joined. Repeatable."
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="The pictures, as kind:path?split=test.")] = None,
    scorer: Annotated[str | None, typer.Option(help="Scorer: folder, run, hub name, or 'scenes'.")] = None,
    eval_scorer: Annotated[
        list[str] | None, typer.Option(help="A held-out scorer that measures too. Repeatable.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(help="Names, with commas; 'list' shows them all. Default: all that can be had. Repeatable."),
    ] = None,
    human: Annotated[
        str | None,
        typer.Option(help="Score references as a system too: first, random, or mean."),
    ] = None,
    chance: Annotated[bool, typer.Option("--chance", help="Add random chance as a system.")] = False,
    lookalike: Annotated[int, typer.Option(min=2, help="Pictures in a look-alike set.")] = 10,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap resamples behind each interval.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Score the ids that all files have.")] = False,
    min_overlap: Annotated[
        float, typer.Option(min=0, max=1, help="Refuse files that share a smaller part of their ids.")
    ] = 0.5,
    language_model: Annotated[
        str | None, typer.Option(help="For perplexity: a causal language model, folder or hub name.")
    ] = None,
    bertscore: Annotated[
        str | None, typer.Option(help="For BERTScore: a text encoder such as roberta-large, folder or hub name.")
    ] = None,
    long_texts: Annotated[
        str, typer.Option(help="Captions beyond the scorer's window: truncate, or sentences (scored one by one).")
    ] = "truncate",
    emscore_idf: Annotated[
        str | None, typer.Option(help="Weigh EMScore's tokens by rareness in the references, or captions.")
    ] = None,
    words: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show N adjectives and nouns that are most each system's own.")
    ] = 0,
    bags: Annotated[
        list[Path] | None,
        typer.Option(help="Candidate sets: bags.jsonl, TrueMatch's 3.json, ImageCoDe's JSON. Repeatable."),
    ] = None,
    distractors: Annotated[
        str | None, typer.Option(help="A hard pool: further pictures, as kind:path, that captions are told from.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the result: .json, .csv, .md, .tex, or .txt.")
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
    as_json: Json = False,
) -> None:
    """Measure captions: do they tell pictures apart, and what are they like?"""
    from tellapart.evaluation import formats
    from tellapart.evaluation.evaluate import run_eval

    chosen = None if metrics is None else [name.strip() for name in ",".join(metrics).split(",") if name.strip()]
    if chosen is not None and [name.lower() for name in chosen] == ["list"]:
        from tellapart.cli.metric_list import listed, table

        show({"metrics": [metric.to_json() for metric in listed()]}, lambda: table(listed()), as_json)
        return
    if not captions:
        raise UsageError("Missing option '--captions'; type: tellapart eval --help")
    if chosen == []:
        raise UsageError(
            "--metrics names none; type --metrics length,clipscore, or leave it out for all that can be had"
        )
    if as_json and format not in (None, "json") and out is None:
        raise UsageError(f"--json and --format {format} contradict each other; leave one of them out")
    chosen_format = formats.format_of(out, format)
    for path, suffixes in ((out, ()), (per_caption, (".jsonl", ".csv")), (report, (".html", ".htm"))):
        if path is not None:
            formats.check_file(path, suffixes)
    results = run_eval(
        captions,
        references,
        data,
        scorer,
        chosen,
        eval_scorers=eval_scorer or (),
        human=human,
        chance=chance,
        lookalike=lookalike,
        resamples=resamples,
        seed=seed,
        allow_missing=allow_missing,
        min_overlap=min_overlap,
        language_model=language_model,
        bertscore=bertscore,
        long_texts=long_texts,
        emscore_idf=emscore_idf,
        words=words,
        bags=bags or (),
        distractors=distractors,
    )
    if out is not None:
        formats.write(out, formats.FORMATS[chosen_format](results))
    if per_caption is not None:
        formats.write(per_caption, formats.per_caption(results, per_caption))
    if report is not None:
        from tellapart.evaluation.page import write_eval_page

        write_eval_page(results, report, typed_command(), results.extra["items"])
    if out is None and format is not None and chosen_format != "json":
        print(formats.FORMATS[chosen_format](results), end="")
    else:
        show(results.to_json(), results.table, as_json or (out is None and chosen_format == "json"))
    for what, path in (("result", out), ("per caption", per_caption), ("report", report)):
        if path is not None:
            say(f"{what}: {path}")


@app.command(rich_help_panel=MEASURING)
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Default: RUN/report.html.")] = None,
) -> None:
    """Write the HTML page of one run, or of several side by side."""
    from tellapart.report import build_report

    print(for_terminal(str(build_report(runs, out))))


@app.command(rich_help_panel=TRAINING)
def demo(
    out: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/demo"),
    as_json: Json = False,
) -> None:
    """Teach the small captioner of the embedded world to tell look-alikes apart, in two minutes."""
    from tellapart.cli.demo import run_demo

    run_demo(out)
    show_run(out, as_json)


@app.command(rich_help_panel=HOUSEKEEPING)
def cache(
    empty: Annotated[bool, typer.Option("--empty", help="Drop everything.")] = False,
    as_json: Json = False,
) -> None:
    """Where encoded pictures are kept, how much there is, and how to be rid of it."""
    from tellapart.cli.cache import describe_cache, empty_cache

    value, told = empty_cache() if empty else describe_cache()
    show(value, lambda: told, as_json)


@app.command(rich_help_panel=RESEARCH)
def bench(
    work: Annotated[str, typer.Argument(help="What to time: bags, boost, metrics, rollout or smile.")],
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each; medians are shown.")] = 3,
    only: Annotated[str, typer.Option(metavar="TEXT", help="Only rows whose work contains this.")] = "",
    as_json: Json = False,
) -> None:
    """Time our way against the usual one, side by side."""
    from tellapart.bench import run_bench
    from tellapart.bench.rows import table

    rows = run_bench(work, repeat, only)
    title = f"{work}: medians of {repeat} runs (least–most); ratio above 1: ours is better"
    show({"rows": [row.to_json() for row in rows]}, lambda: table(rows, title), as_json)


def main() -> None:
    """Run a command. What goes wrong is one line on stderr, with exit code 2 for usage and 1 for failure."""
    # What a start makes stays: to look through it for garbage, again and again and at the end, takes a short command
    # longer than its work.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):  # a dash or a name that the terminal's encoding lacks ends no command
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments, given = split_arguments(sys.argv[1:])
    for argument in arguments:
        if "\0" in argument or (not argument.isascii() and unreadable(argument)):
            fail(f"{argument[:80]!r} holds a character that no file name can hold; leave it out", 2)
    debug = "--debug" in given
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        choose_verbosity(given)
        arguments = without_allowed_code(arguments)
        allow_named_in(arguments)
        status = with_command(arguments)(args=arguments or ["--help"], prog_name="tellapart", standalone_mode=False)
    except Exception as error:
        if debug or (line := one_line(error)) is None:
            raise
        fail(line, getattr(error, "exit_code", 1))
    if status == INTERRUPTED:  # typer has caught the KeyboardInterrupt
        fail("stopped; what was saved stays, and the same command goes on (train: with --resume)", INTERRUPTED)


def unreadable(argument: str) -> bool:
    """Whether no shell can have typed it: half a character that stands for no byte."""
    try:
        os.fsencode(argument)
    except UnicodeEncodeError:
        return True
    return False


def split_arguments(arguments: list[str]) -> tuple[list[str], set[str]]:
    """The arguments of a command, and those of `EVERYWHERE` that stand among them; what follows ``--`` is no option."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, rest = arguments[:end], arguments[end:]
    given = {EVERYWHERE[option] for option in options if option in EVERYWHERE}
    return [option for option in options if option not in EVERYWHERE] + rest, given


def choose_verbosity(given: set[str]) -> None:
    """How much this command and the libraries below it say. Raises `UsageError` for both extremes at once."""
    if {"--quiet", "--verbose"} <= given:
        raise UsageError("--quiet and --verbose contradict each other; leave one of them out")
    set_verbosity(
        Verbosity.QUIET if "--quiet" in given else Verbosity.VERBOSE if "--verbose" in given else Verbosity.NORMAL
    )
    if given & {"--quiet", "--verbose"}:
        level = "error" if "--quiet" in given else "info"
        os.environ |= {"TRANSFORMERS_VERBOSITY": level, "DATASETS_VERBOSITY": level}
    if "--quiet" in given:
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def without_allowed_code(arguments: list[str]) -> list[str]:
    """The arguments without ``--allow-code MODULE:FACTORY``, which may stand anywhere and is obeyed here."""
    left: list[str] = []
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        if option == OPTION:
            allow_code(value if equals else next(words, ""))
            continue
        left.append(word)
        if word == "--":  # what follows is no option
            left += words
    return left


def with_command(arguments: list[str]) -> typer.Typer:
    """The app with only the command that is typed, where it is one: to build all takes longer than some commands."""
    typed = next((argument for argument in arguments if not argument.startswith("-")), None)
    chosen = copy(app)
    chosen.registered_commands = [command for command in app.registered_commands if name_of(command) == typed]
    chosen.registered_groups = [group for group in app.registered_groups if typed in names_of(group.typer_instance)]
    return chosen if chosen.registered_commands or chosen.registered_groups else app


def names_of(group: Any) -> list[str]:
    """What is typed for a group of commands: its name, or where it has none, its commands'."""
    return [name] if isinstance(name := group.info.name, str) else [name_of(one) for one in group.registered_commands]


def name_of(command: Any) -> str:
    return command.name or command.callback.__name__.replace("_", "-")


def one_line(error: Exception) -> str | None:
    """An error that a user can mend, as a line; None for a mistake of our own, which deserves its traceback."""
    if isinstance(error, TellapartError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}; add --debug to see where"
    if isinstance(error, MemoryError):
        return f"not enough memory{f' ({error})' if str(error) else ''}; ask for less at once, or use a larger machine"
    if hasattr(error, "format_message"):  # typer's own: a wrong option, a missing argument
        context = getattr(error, "ctx", None)
        return f"{error.format_message().rstrip('.')}; type: {context.command_path if context else 'tellapart'} --help"
    return None


def fail(line: str, status: int) -> NoReturn:
    print(for_terminal(f"tellapart: {single_line(line)}"), file=sys.stderr, flush=True)
    sys.exit(status)
