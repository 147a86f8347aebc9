"""The command ``tellapart``: the app with all verbs, what the verbs share, and how errors end a command.

Verbs share aliases and checks of options, the order of the help, and options that several have. `show` prints a result
as a table or a line for people, or as JSON alone. ``--device`` and ``--precision``: docs/devices.md. Options that
may stand anywhere in a line are taken out of it before typer parses it.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import inspect
import io
import math
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.models import OptionInfo

from tellapart import __version__
from tellapart.cli.launch import INTERRUPTED, LAUNCHED, end_rank
from tellapart.errors import TellapartError, UsageError
from tellapart.utils.files import is_url, paths_in, refuse_device, refuse_input, set_output_rules
from tellapart.utils.messages import (
    Verbosity,
    console,
    for_terminal,
    json_text,
    say,
    set_verbosity,
    single_line,
    stdout_errors,
)
from tellapart.utils.registry import OPTION, allow_code, allow_named_in

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from tellapart.jobs.run import Workers as ClusterWorkers


RAY_ADDRESS = re.compile(r"auto|ray://\S+|[\w.\-\[\]:]+:\d+")  # the value of --ray, which may be left out
F = TypeVar("F", bound=Callable[..., Any])

# The panels of ``tellapart --help``, in the order of work.
TRAINING, MEASURING = "Train a captioner", "Caption and measure"
DATA, RESEARCH, HOUSEKEEPING = "Better data", "Replicate", "Housekeeping"
ORDER = (
    *(
        "demo",
        "finetune",
        "train",
        "caption",
        "eval",
        "check",
        "report",
        "recipes",
        "bags",
        "study",
        "boost",
    ),
    *("data", "tables", "cache", "job"),
)
# Verbs of earlier versions, which stay.
FORMER_VERBS = {
    "boost-merge": ("job", "merge"),
    "changes": ("report", "changes"),
    "encode": ("data", "encode"),
    "headroom": ("eval", "headroom"),
}
# Other names of options: those of other tools, and old ones. An alias works where the command has no option of that
# name, and is hidden from its help.
ALIASES: dict[str, tuple[str, ...]] = {
    "--lr": ("--rate", "--learning-rate"),
    "--learning-rate": ("--rate",),
    "--output": ("--out",),
    "--num-beams": ("--beams",),
    "--max-new-tokens": ("--max-tokens",),
    "--metric": ("--metrics",),
    "--concurrency": ("--in-flight",),
    "--in-flight": ("--concurrency",),
    "--reference": ("--references",),
    "--truthful": ("--drop-guesses",),
}

OUTPUTS = {"-o", "--report", "--per-caption", "--review", "--copies"}  # options that name what is written


class Command(TyperCommand):
    """A command that refuses an option given twice where only the last value would count, and an output that is also
    an input or another output. A command with an output has ``--overwrite`` (see `tellapart.utils.files`).

    The help of a command that takes data sets ends with the kinds of data.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        options = {option for param in self.params for option in param.opts}
        self._adds_overwrite = bool(options & OUTPUTS) and "--overwrite" not in options
        if self._adds_overwrite:
            self.params.append(TyperOption(
                param_decls=["--overwrite"], is_flag=True, default=False,
                help="Replace files that tellapart did not write, or that somebody changed since.",
            ))  # fmt: skip

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See click."""
        if any("kind:path" in (getattr(param, "help", None) or "") for param in self.params):
            from tellapart.data.reader import kinds_help

            self.epilog = kinds_help()
        verbs = getattr(ctx.parent and ctx.parent.command, "commands", {})
        if more := [f"tellapart {name} --help" for name in verbs if name.startswith(f"{self.name} ")]:
            self.epilog = "\n\n".join(filter(None, (self.epilog, f"See also: {', '.join(more)}")))
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click. Raises `UsageError`."""
        args = with_optional_values(without_aliases(args, self.get_params(ctx)))
        refuse_repeats(self, ctx, args)
        rest = super().parse_args(ctx, args)
        for param in self.params:
            value = ctx.params.get(param.name or "")
            values = value if isinstance(value, list | tuple) else [value]
            if any(isinstance(number, float) and not math.isfinite(number) for number in values):  # no range holds NaN
                raise UsageError(f"{param.opts[0]} {value}: expected a finite number")
            if param.type.name not in ("path", "file", "directory"):
                continue
            if "" in values:
                raise UsageError(f"{param.opts[0]} '': expected the name of a {param.type.name}")
            if "-" in values:
                expected = "expected a name, for this is neither stdin nor stdout; a file that is called so is ./-"
                raise UsageError(f"{param.opts[0]} -: {expected}")
        if not ctx.resilient_parsing:
            ctx.call_on_close(set_output_rules)  # no rule of this command is one of the next in this process
            self._declare_files(ctx.params)
        return rest

    def _declare_files(self, values: dict[str, Any]) -> None:
        """Tells `tellapart.utils.files` what the command reads. Raises `UsageError` for an output that is also an input
        or another output.
        """
        inputs: list[tuple[str, str]] = []
        outputs: list[tuple[str, str]] = []
        for param in self.params:
            value = values.get(param.name or "")
            typed = [str(each) for each in (value if isinstance(value, list | tuple) else [value])
                     if isinstance(each, str | Path)]  # fmt: skip
            name = param.opts[0] if param.opts[0].startswith("-") else (param.metavar or str(param.name)).upper()
            (outputs if OUTPUTS.intersection(param.opts) else inputs).extend((name, each) for each in typed)
        for name, value in inputs:
            refuse_device(value, name)
        paths = {param.opts[0] for param in self.params if param.type.name in ("path", "file", "directory")}
        inputs = [(name, value) for name, value in inputs
                  if name in paths or any(map(os.path.exists, paths_in(value)))]  # fmt: skip
        overwrite = bool(values.get("overwrite"))
        if self._adds_overwrite:
            values.pop("overwrite", None)
        for place, (name, value) in enumerate(outputs):
            set_output_rules([*inputs, *outputs[:place]])
            if value != "-" and not is_url(value):
                refuse_input(Path(value).expanduser(), name)
        set_output_rules(inputs, overwrite=overwrite)


class VerbGroup(TyperGroup):
    """A group of commands, listed in `ORDER`. Its own options follow the rules of `Command`.

    A command may have a name of two words beside one of the first word alone: ``eval headroom`` and ``eval``. It is
    hidden, and named in the help of the other.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click. Raises `UsageError`."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit()
        refuse_repeats(self, ctx, args)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See click. Knows commands of two words, and `FORMER_VERBS`."""
        if args[0] not in self.commands:
            args = [*FORMER_VERBS.get(args[0], args[:1]), *args[1:]]
        if (command := self.commands.get(name := " ".join(args[:2]))) is not None:
            return name, command, args[2:]
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in `ORDER`; others follow in the order in which they were added."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


class App(typer.Typer):
    """A `typer.Typer` of `Command` and `VerbGroup`, whose commands get their options by `with_options`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"cls": VerbGroup, **settings})

    def command(self, *args: Any, **settings: Any) -> Callable[[F], F]:
        """See `typer.Typer.command`."""
        register = super().command(*args, **{"cls": Command, **settings})

        def decorator(function: F) -> F:
            register(with_options(function))
            return function

        return decorator


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with an option for each annotated field of its parameters that are dataclasses.

    The options stand in the place of the parameter, which the function gets as an object made of them.
    """
    own = inspect.signature(function, eval_str=True).parameters.values()
    options = {each.name: option_parameters(each.annotation) for each in own if is_dataclass(each.annotation)}
    if not options:
        return function

    def command(**values: Any) -> None:
        made = {each.name: each.annotation(**{one.name: values.pop(one.name) for one in options[each.name]})
                for each in own if each.name in options}  # fmt: skip
        function(**values, **made)

    parameters = [one for each in own for one in options.get(each.name, [each])]
    signature = inspect.Signature([each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def option_parameters(kind: Any) -> list[inspect.Parameter]:
    """Returns the fields of a dataclass that are annotated with a `typer.Option`, as parameters."""

    class Names(dict[str, Any]):
        def __missing__(self, name: str) -> Any:  # imported for type checkers only
            return object

    names = Names(vars(builtins) | vars(sys.modules[kind.__module__]))
    hints, keyword = get_type_hints(kind, localns=names, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(each.name, keyword, default=each.default, annotation=hints[each.name])
        for each in fields(kind)
        if any(isinstance(note, OptionInfo) for note in getattr(hints[each.name], "__metadata__", ()))
    ]


def without_aliases(args: list[str], params: Iterable[Any]) -> list[str]:
    """The arguments with `ALIASES` replaced by the option that the command has."""
    known = {option for param in params for option in (*param.opts, *param.secondary_opts)}
    replaced = list(args)
    for place, argument in enumerate(args):
        if argument == "--":
            break
        name, equals, value = argument.partition("=")
        ours = next((option for option in ALIASES.get(name, ()) if option in known), None)
        if ours is not None and name not in known:
            replaced[place] = ours + equals + value
    return replaced


def with_optional_values(args: list[str]) -> list[str]:
    """The arguments with a bare ``--ray`` as ``--ray=auto``: what follows it is its value where it is an address."""
    replaced: list[str] = []
    for place, argument in enumerate(args):
        if argument == "--":
            return [*replaced, *args[place:]]
        following = args[place + 1] if place + 1 < len(args) else ""
        bare = argument == "--ray" and not RAY_ADDRESS.fullmatch(following)
        replaced.append("--ray=auto" if bare else argument)
    return replaced


def refuse_repeats(command: Any, ctx: Any, args: list[str]) -> None:
    """Raise `UsageError` for an option that takes one value and is given several times.

    A plain flag may be repeated: nothing is lost, unless it has an opposite (``--exact --approximate``).
    """
    if ctx.resilient_parsing:  # shell completion parses incomplete lines
        return
    _, _, order = command.make_parser(ctx).parse_args(args=list(args))
    for param, count in Counter(param for param in order if isinstance(param, TyperOption)).items():
        flag = param.is_flag and not param.secondary_opts
        if count > 1 and not (param.multiple or param.count or flag):
            names = "/".join((*param.opts[:1], *param.secondary_opts[:1]))
            raise UsageError(f"{names} is typed {count} times and takes one value; leave one of them")


WIDE = 200  # columns of a table that goes to a file or a pipe, where rich would wrap at 80

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, and nothing else there.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, as in training.steps=200. Repeatable."),
]

Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Remove the run in --out and begin anew, once all is checked and loaded.")
]


def show(value: Any, render: Callable[[], RenderableType], as_json: bool) -> None:
    """Print ``value`` as JSON, or what ``render`` returns: a line of text or anything that rich prints."""
    rendered = json_text(value) if as_json else render()
    with stdout_errors():
        if isinstance(rendered, str):
            print(rendered if as_json else for_terminal(rendered))
        else:
            console(width=None if sys.stdout.isatty() else WIDE).print(rendered)


def table_of(heads: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> Table:
    """Returns a table for the terminal. Columns of numbers are set right; texts are no markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = [*map(list, rows)]
    table = Table(box=box.SIMPLE_HEAD, title=title and Text(title), title_justify="left")
    for column, head in enumerate(heads):
        numeric = rows and all(re.match(r"[+\-−–]?\d|–?$", row[column]) for row in rows)
        table.add_column(head, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def show_run(folder: Path, as_json: bool) -> None:
    """Print the results of a finished run, and where its model and report are."""
    from tellapart.evaluation.formats import read_results

    value, results = read_results(folder)
    none = "Not measured: the recipe names no test set. To measure the model, type: tellapart eval"
    show(value, lambda: results.table(without=("human", "chance")) if results.systems else none, as_json)
    for label, file in (("model", folder / "model"), ("report", folder / "report.html")):
        if file.exists():
            say(f"{label}: {file}")


Device = Annotated[
    str, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1, mps. Auto: the accelerator, else the CPU.")
]
InferencePrecision = Annotated[
    str, typer.Option("--precision", help="auto, fp32, bf16, fp16. Auto: bf16 where the device multiplies in it.")
]
ExactPrecision = Annotated[
    str, typer.Option("--precision", help="auto, fp32, bf16, fp16. Auto: fp32, as metrics are compared in.")
]
RecipePrecision = Annotated[str, typer.Option("--precision", help="auto, fp32, bf16. Auto: what the recipe says.")]


def precision_settings(precision: str) -> Sequence[str]:
    """The ``--set`` that ``--precision`` stands for in training. Raises `UsageError`."""
    if precision == "fp16":
        raise UsageError("fp16 would need a scaled loss, which training here does not have; type: --precision bf16")
    if precision not in ("auto", "fp32", "bf16"):
        raise UsageError(f"--precision {precision}: expected auto, fp32 or bf16")
    return () if precision == "auto" else (f"training.precision={precision}",)


PANEL = "Many workers"


@dataclass(frozen=True)
class WorkerOptions:
    """The options of commands that many workers can do."""

    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="N processes on this machine, by Ray.", rich_help_panel=PANEL),
    ] = None
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="The Ray cluster that this machine has joined by ray start.",
            rich_help_panel=PANEL,
        ),
    ] = None
    cpus_per_worker: Annotated[
        float | None, typer.Option(min=0.1, help="CPU cores of each worker.", rich_help_panel=PANEL)
    ] = None
    gpus_per_worker: Annotated[
        float | None, typer.Option(min=0, help="GPUs of each worker; 0.5: two share one.", rich_help_panel=PANEL)
    ] = None
    shard_items: Annotated[
        int | None, typer.Option(min=1, help="Pictures in a shard of a list. Default: 1024.", rich_help_panel=PANEL)
    ] = None

    @property
    def wanted(self) -> bool:
        """Is True where the command is a job. Raises `UsageError` for an option that has no effect without."""
        if self.workers is not None or self.ray is not None:
            return True
        for name, value in asdict(self).items():
            if value not in (None, False):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} is for many workers; type --workers 2 or --ray with it, or leave it out")
        return False

    def cluster(self) -> ClusterWorkers:
        """Returns the workers that are wanted."""
        from tellapart.jobs.run import Workers

        return Workers(self.workers, self.ray, self.cpus_per_worker, self.gpus_per_worker)


@dataclass(frozen=True)
class JobOptions(WorkerOptions):
    """The options of commands that are one job, which can be estimated."""

    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Time a sample, print hours, cost and disk, and stop.", rich_help_panel=PANEL),
    ] = False
    price: Annotated[
        float | None,
        typer.Option(min=0, metavar="AMOUNT", help="With --estimate: of a worker for an hour.", rich_help_panel=PANEL),
    ] = None

    @property
    def wanted(self) -> bool:
        """As `WorkerOptions.wanted`."""
        wanted = super().wanted
        if wanted and self.price is not None and not self.estimate:
            raise UsageError("--price is for --estimate; type it with it, or leave it out")
        return wanted


def recipe_names(incomplete: str) -> list[str]:
    """Recipes that ship with the package, and TOML files and folders that begin so, for the shell's completion."""
    from tellapart.recipe.reading import shipped

    folder, begun = Path(incomplete).parent if "/" in incomplete else Path(), incomplete.rpartition("/")[2]
    found = sorted(folder.glob(f"{begun}*")) if folder.is_dir() else []
    files = [f"{each}/" if each.is_dir() else str(each) for each in found if each.is_dir() or each.suffix == ".toml"]
    return [name for name in shipped() if name.startswith(incomplete)] + files


# Flags that every command takes anywhere in the line; the short form maps to the long one.
GLOBAL_FLAGS = {name: name for name in ("--debug", "--quiet", "--verbose")} | {"-q": "--quiet"}


def apply_global_options(arguments: list[str], flags: set[str]) -> list[str]:
    """Set the verbosity, allow the code that ``--allow-code`` names, and return the remaining arguments.

    Raises `UsageError` for an argument that cannot be a path, and for flags that contradict each other.
    """
    for argument in arguments:
        if "\0" in argument or not (argument.isascii() or _encodable(argument)):
            raise UsageError(f"{argument[:80]!r} holds a character that no file name can hold; leave it out")
    _apply_verbosity(flags)
    remaining = _without_allowed_code(arguments)
    allow_named_in(remaining)
    return remaining


def split_arguments(arguments: list[str]) -> tuple[list[str], set[str]]:
    """Separate `GLOBAL_FLAGS` from the other arguments; nothing after ``--`` is a flag."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, positional = arguments[:end], arguments[end:]
    flags = {GLOBAL_FLAGS[option] for option in options if option in GLOBAL_FLAGS}
    return [option for option in options if option not in GLOBAL_FLAGS] + positional, flags


def _encodable(argument: str) -> bool:
    """Returns whether the operating system can hold the text: a lone surrogate that stands for no byte cannot be
    typed.
    """
    try:
        os.fsencode(argument)
    except UnicodeEncodeError:
        return False
    return True


def _apply_verbosity(flags: set[str]) -> None:
    """Set the verbosity of this process and of the libraries below it."""
    if {"--quiet", "--verbose"} <= flags:
        raise UsageError("--quiet and --verbose contradict each other; leave one of them out")
    set_verbosity(
        Verbosity.QUIET if "--quiet" in flags else Verbosity.VERBOSE if "--verbose" in flags else Verbosity.NORMAL
    )
    if flags & {"--quiet", "--verbose"}:
        level = "error" if "--quiet" in flags else "info"
        os.environ |= {"TRANSFORMERS_VERBOSITY": level, "DATASETS_VERBOSITY": level}
    if "--quiet" in flags:
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def _without_allowed_code(arguments: list[str]) -> list[str]:
    """Allow the code that ``--allow-code MODULE:FACTORY`` names, and return the other arguments."""
    remaining: list[str] = []
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        if option == OPTION:
            allow_code(value if equals else next(words, ""))
            continue
        remaining.append(word)
        if word == "--":  # nothing after it is an option
            remaining += words
    return remaining


app = App(
    name="tellapart",
    help="Teach an image captioner to say what tells a picture apart, and measure honestly whether it does.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # without its commands: `whole_app` and `app_with_one_command` add them
FOLDER = __name__.rpartition(".")[0]


@app.callback(invoke_without_command=True)
def common(
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version and exit.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print results and errors only. With every command.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print every step. With every command.")] = False,
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
    """Options that every command takes. They are here for ``--help``: `main` removes them before typer parses."""
    if version:
        with stdout_errors():
            print(__version__)
        raise typer.Exit


def main() -> None:
    """Runs the command ``tellapart``; loads the typed verb alone."""
    # Objects made at start-up stay alive. Without this, garbage collection takes longer than a short command's work.
    gc.set_threshold(100_000)
    atexit.register(_skip_last_collection)
    _open_streams()
    _stop_at_sigterm()
    run(app_with_one_command)


def _open_streams() -> None:
    """Opens standard streams that the caller closed (``>&-``) on the null device.

    A file opened later would else take the number of stdout, and hold what libraries print there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            if getattr(sys, name) is None:
                setattr(sys, name, open(number, "r+" if number == 0 else "w", encoding="utf-8"))  # noqa: PTH123, SIM115


def _stop_at_sigterm() -> None:
    """Makes SIGTERM (of ``timeout``, Slurm, containers) end this process as Ctrl-C does, with what it holds put away.

    Processes that it forks end at once, as they would without.
    """
    own = os.getpid()

    def stop(number: int, _: object) -> None:
        if os.getpid() != own:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        _STOPPED_BY[:] = [number]
        raise KeyboardInterrupt

    if not os.environ.get(LAUNCHED) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)


_STOPPED_BY = [int(signal.SIGINT)]


def _skip_last_collection() -> None:
    """Spares the exit its garbage collection, except of Triton, which prints what is left of it as leaks."""
    if "triton" not in sys.modules:
        gc.freeze()


def run(app_for: Callable[[list[str]], Any], prog_name: str = "tellapart") -> None:
    """Run a command of the app that ``app_for`` gives for the arguments.

    An error is one line on stderr; the exit code is 2 for wrong usage and 1 for a failure.
    """
    for stream in (sys.stdout, sys.stderr):  # a character that the terminal's encoding lacks must not end a command
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments, flags = split_arguments(sys.argv[1:])
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        arguments = apply_global_options(arguments, flags)
        status = app_for(arguments)(args=arguments or ["--help"], prog_name=prog_name, standalone_mode=False)
        with stdout_errors():
            sys.stdout.flush()
    except Exception as error:
        line, code = one_line(error), getattr(error, "exit_code", 1)
        if os.environ.get(LAUNCHED):
            end_rank(error, line, code)
        if "--debug" in flags or line is None:
            raise
        fail(line, code)
    if status == INTERRUPTED:  # typer has caught the KeyboardInterrupt
        if os.environ.get(LAUNCHED):
            end_rank(KeyboardInterrupt(), "stopped", INTERRUPTED)
        resume = "the same command with --resume" if arguments[:1] == ["train"] else "the same command"
        line = f"stopped; what was saved stays, and {resume} goes on"
        fail(line, 128 + _STOPPED_BY[0])


def whole_app() -> App:
    """The app with every command."""
    return app_of(_groups(_modules()))


def app_with_one_command(arguments: list[str]) -> App:
    """The app with only the typed command, where it exists, else with all: to load all takes longer than some run."""
    typed = next((argument for argument in arguments if not argument.startswith("-")), "")
    typed = FORMER_VERBS.get(typed, (typed,))[0]
    known = _modules()
    for modules in ([typed] if typed in known else [], known):
        filled = app_of(_groups(modules))
        if groups := [group for group in filled.registered_groups if typed in _names(group.typer_instance)]:
            filled.registered_groups = groups
            break
    return filled


def _modules() -> list[str]:
    """A module with an `app` is a command, or a group of them. An underscore in its name: a part of a command."""
    found = sorted(file.stem for folder in import_module(FOLDER).__path__ for file in Path(folder).glob("*.py"))
    return [name for name in found if name != "app" and "_" not in name]


def app_of(groups: Iterable[App]) -> App:
    """Returns the app with the commands of these groups."""
    filled = copy(app)
    filled.registered_groups = []
    for group in groups:
        filled.add_typer(group)
    return filled


def _groups(modules: list[str]) -> Iterator[App]:
    for name in modules:
        if isinstance(group := getattr(import_module(f"{FOLDER}.{name}"), "app", None), App):
            yield group


def _names(group: Any) -> list[str]:
    """The words that select a group: its name, or the names of its commands where it has none."""
    if isinstance(name := group.info.name, str):
        return [name]
    names = [str(one.name or one.callback.__name__.replace("_", "-")) for one in group.registered_commands]
    return [name.partition(" ")[0] for name in names]


def one_line(error: Exception) -> str | None:
    """The message of an error that a user can mend; None for a bug, which deserves its traceback."""
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
    """End the process with a message on stderr."""
    print(for_terminal(f"tellapart: {single_line(line)}"), file=sys.stderr, flush=True)
    sys.exit(status)
