"""What every command has in common: repeated options, the names that other tools use, the order of the help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from tellapart.errors import UsageError

# The panels of ``tellapart --help``, in the order of work.
TRAINING, MEASURING = "Train a captioner", "Caption and measure"
DATA, RESEARCH, HOUSEKEEPING = "Better data", "Replicate and time", "Housekeeping"
ORDER = (
    *("demo", "finetune", "train", "caption", "eval", "report", "recipes", "bags", "boost", "boost-merge"),
    *("claims", "tables", "bench", "cache"),
)
# What other tools call an option of ours. An alias is taken where the command has no such option of its own, and is not
# shown in its help.
ALIASES: dict[str, tuple[str, ...]] = {
    "--lr": ("--rate", "--learning-rate"),
    "--learning-rate": ("--rate",),
    "--output": ("--out",),
    "--num-beams": ("--beams",),
    "--max-new-tokens": ("--max-tokens",),
    "--judge": ("--eval-scorer",),
    "--metric": ("--metrics",),
    "--reference": ("--references",),
}


class Command(TyperCommand):
    """A command that refuses an option typed twice where only one value would count."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click. Raises `UsageError`."""
        args = without_aliases(args, self.get_params(ctx))
        refuse_repeats(self, ctx, args)
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """A group of commands, listed in the order of work. Its own options follow the rules of `Command`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click. Raises `UsageError`."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit()
        refuse_repeats(self, ctx, args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of `ORDER`; others behind, as they were added."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


class App(typer.Typer):
    """A `typer.Typer` whose commands are `Command` and whose groups are `Group`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"cls": Group, **settings})

    def command(self, *args: Any, **settings: Any) -> Any:
        """See `typer.Typer.command`."""
        return super().command(*args, **{"cls": Command, **settings})


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


def refuse_repeats(command: Any, ctx: Any, args: list[str]) -> None:
    """Raises `UsageError` for an option that takes one value and is typed with several.

    A flag may stand there twice: that drops nothing, unless it has an opposite (``--exact --approximate``).
    """
    if ctx.resilient_parsing:  # the shell completes a line that may be half typed
        return
    _, _, order = command.make_parser(ctx).parse_args(args=list(args))
    for param, count in Counter(param for param in order if isinstance(param, TyperOption)).items():
        flag = param.is_flag and not param.secondary_opts
        if count > 1 and not (param.multiple or param.count or flag):
            names = "/".join((*param.opts[:1], *param.secondary_opts[:1]))
            raise UsageError(f"{names} is typed {count} times and takes one value; leave one of them")
