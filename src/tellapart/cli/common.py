"""What every command shares: option aliases, the check for repeated options, the order of the help."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from tellapart.errors import UsageError

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
        "changes",
        "headroom",
        "report",
        "recipes",
        "bags",
        "study",
        "boost",
    ),
    *("boost-merge", "data", "tables", "cache", "job"),
)
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
}


class Command(TyperCommand):
    """A command that refuses an option given twice where only the last value would count.

    The help of a command that takes data sets ends with the kinds of data.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See click."""
        if any("kind:path" in (getattr(param, "help", None) or "") for param in self.params):
            from tellapart.data.registry import kinds_help

            self.epilog = kinds_help()
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click. Raises `UsageError`."""
        args = with_optional_values(without_aliases(args, self.get_params(ctx)))
        refuse_repeats(self, ctx, args)
        rest = super().parse_args(ctx, args)
        for param in self.params:
            value = ctx.params.get(param.name or "")
            values = value if isinstance(value, list | tuple) else [value]
            if param.type.name in ("path", "file", "directory") and "" in values:
                raise UsageError(f"{param.opts[0]} '': expected the name of a {param.type.name}")
        return rest


class Group(TyperGroup):
    """A group of commands, listed in `ORDER`. Its own options follow the rules of `Command`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click. Raises `UsageError`."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit()
        refuse_repeats(self, ctx, args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in `ORDER`; others follow in the order in which they were added."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


class App(typer.Typer):
    """A `typer.Typer` whose commands are `Command` and whose groups are `Group`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"cls": Group, **settings})

    def command(self, *args: Any, **settings: Any) -> Callable[[F], F]:
        """See `typer.Typer.command`."""
        decorator: Callable[[F], F] = super().command(*args, **{"cls": Command, **settings})
        return decorator


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


def recipe_names(incomplete: str) -> list[str]:
    """Recipes that ship with the package, and TOML files and folders that begin so, for the shell's completion."""
    from pathlib import Path

    from tellapart.recipe.reading import shipped

    folder, begun = Path(incomplete).parent if "/" in incomplete else Path(), incomplete.rpartition("/")[2]
    found = sorted(folder.glob(f"{begun}*")) if folder.is_dir() else []
    files = [f"{each}/" if each.is_dir() else str(each) for each in found if each.is_dir() or each.suffix == ".toml"]
    return [name for name in shipped() if name.startswith(incomplete)] + files


def metric_names(incomplete: str) -> list[str]:
    """The names of metrics, the last of several with commas between them, for the shell's completion."""
    from tellapart.metrics.registry import METRICS

    before, comma, begun = incomplete.rpartition(",")
    return [before + comma + name for name in ("all", "list", *METRICS) if name.startswith(begun)]
