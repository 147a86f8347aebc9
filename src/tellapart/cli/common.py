"""Shared parts of the commands: aliases and checks of options, the order of the help, options that several have.

`show` prints a result as a table or a line for people, or as JSON alone. ``--device`` and ``--precision``:
docs/devices.md.
"""

from __future__ import annotations

import builtins
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from tellapart.errors import UsageError
from tellapart.utils.messages import console, say
from tellapart.utils.text import for_terminal, json_text

if TYPE_CHECKING:
    from rich.console import RenderableType

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


class Command(TyperCommand):
    """A command that refuses an option given twice where only the last value would count.

    The help of a command that takes data sets ends with the kinds of data.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See click."""
        if any("kind:path" in (getattr(param, "help", None) or "") for param in self.params):
            from tellapart.data.dataset import kinds_help

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
            if param.type.name not in ("path", "file", "directory"):
                continue
            if "" in values:
                raise UsageError(f"{param.opts[0]} '': expected the name of a {param.type.name}")
            if "-" in values:
                expected = "expected a name, for this is neither stdin nor stdout; a file that is called so is ./-"
                raise UsageError(f"{param.opts[0]} -: {expected}")
        return rest


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
    """Returns the annotated fields of a dataclass as parameters. Other fields are no options."""

    class Names(dict[str, Any]):
        def __missing__(self, name: str) -> Any:  # imported for type checkers only
            return object

    names = Names(vars(builtins) | vars(sys.modules[kind.__module__]))
    hints, keyword = get_type_hints(kind, localns=names, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(each.name, keyword, default=each.default, annotation=hints[each.name])
        for each in fields(kind)
        if get_origin(hints[each.name]) is Annotated
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
    if as_json:
        print(json_text(value))
    elif isinstance(rendered := render(), str):
        print(for_terminal(rendered))
    else:
        console(width=None if sys.stdout.isatty() else WIDE).print(rendered)


def show_run(folder: Path, as_json: bool) -> None:
    """Print the results of a finished run, and where its model and report are."""
    from tellapart.evaluation.formats import read_results

    value, results = read_results(folder)
    show(value, lambda: results.table(without=("human", "chance")), as_json)
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
    from tellapart.errors import UsageError

    if precision == "fp16":
        raise UsageError("fp16 would need a scaled loss, which training here does not have; type: --precision bf16")
    if precision not in ("auto", "fp32", "bf16"):
        raise UsageError(f"--precision {precision}: expected auto, fp32 or bf16")
    return () if precision == "auto" else (f"training.precision={precision}",)


@dataclass(frozen=True)
class JudgeOptions:
    """The options of commands that ask a judge."""

    llm_judge: Annotated[
        str | None,
        typer.Option(help="The model that judges: openai:MODEL@URL (its key from the environment), or local:FOLDER."),
    ] = None
    ledger: Annotated[
        Path, typer.Option(help="Where the judge's answers are kept; what is there is not asked again.")
    ] = Path("judge.ledger.jsonl")
    prompts: Annotated[
        Path | None, typer.Option(help="A folder with prompts of your own for the judge: clair.txt, arena.txt, …")
    ] = None


def recipe_names(incomplete: str) -> list[str]:
    """Recipes that ship with the package, and TOML files and folders that begin so, for the shell's completion."""
    from tellapart.recipe.reading import shipped

    folder, begun = Path(incomplete).parent if "/" in incomplete else Path(), incomplete.rpartition("/")[2]
    found = sorted(folder.glob(f"{begun}*")) if folder.is_dir() else []
    files = [f"{each}/" if each.is_dir() else str(each) for each in found if each.is_dir() or each.suffix == ".toml"]
    return [name for name in shipped() if name.startswith(incomplete)] + files
