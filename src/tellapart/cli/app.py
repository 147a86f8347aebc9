"""Extends Typer with an order of commands in the help and with checks that apply to every command's arguments."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from tellapart.cli.signature_options import with_options
from tellapart.cli.worker_options import with_optional_values
from tellapart.errors import UsageError
from tellapart.utils.outputs import paths_in, refuse_device, refuse_input, set_output_rules
from tellapart.utils.urls import is_url

F = TypeVar("F", bound=Callable[..., Any])
# The panels of ``tellapart --help``, in the order of work.
TRAINING, MEASURING = "Train a captioner", "Caption and measure"
DATA, RESEARCH, HOUSEKEEPING = "Data and studies", "Replicate", "Housekeeping"
# The order of commands within their panels and groups. Commands that are not listed here come last.
ORDER = (
    "demo", "finetune", "train", "caption", "alt-text", "lora", "captions", "review", "search", "eval", "check",
    "report", "serve", "recipes", "bags", "study", "boost", "data", "tables", "cache", "job",
    "bags mine", "bags review", "study plan", "study create", "study serve", "study simulate", "study report",
)  # fmt: skip
OUTPUTS = {"-o", "--report", "--per-caption", "--copies"}  # options that name output files


class Command(TyperCommand):
    """A command that rejects repeated options and conflicting paths.

    An option must not be passed twice if only its last value would count, and an output must not also be an input or
    another output. Every command with an output accepts ``--overwrite`` (see `tellapart.utils.outputs`).
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        options = {option for param in self.params for option in param.opts}
        self._adds_overwrite = bool(options & OUTPUTS) and "--overwrite" not in options
        if self._adds_overwrite:
            self.params.append(TyperOption(
                param_decls=["--overwrite"], is_flag=True, default=False,
                help="Replace output files that tellapart did not write, or that have been edited.",
            ))  # fmt: skip

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Adds hints about how to list the kinds of data, and about related commands."""
        if any("kind:path" in (getattr(param, "help", None) or "") for param in self.params):
            self.epilog = "To list the kinds of data, run: tellapart data kinds"
        verbs = getattr(ctx.parent and ctx.parent.command, "commands", {})
        if more := [f"tellapart {name} --help" for name in verbs if name.startswith(f"{self.name} ")]:
            self.epilog = "\n\n".join(filter(None, (self.epilog, f"See also: {', '.join(more)}")))
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments and checks inputs and outputs. Raises `UsageError`."""
        args = with_optional_values(args)
        refuse_repeats(self, ctx, args)
        rest = super().parse_args(ctx, args)
        for param in self.params:
            value = ctx.params.get(param.name or "")
            values = value if isinstance(value, list | tuple) else [value]
            if any(
                isinstance(number, float) and not math.isfinite(number) for number in values
            ):  # NaN passes range checks
                raise UsageError(f"{param.opts[0]} {value}: expected a finite number")
            if param.type.name not in ("path", "file", "directory"):
                continue
            if "" in values:
                raise UsageError(f"{param.opts[0]} '': expected the name of a {param.type.name}")
            if "-" in values:
                expected = (
                    "a file name is required, because - does not mean stdin or stdout here; for a file named -, use ./-"
                )
                raise UsageError(f"{param.opts[0]} -: {expected}")
        if not ctx.resilient_parsing:
            ctx.call_on_close(set_output_rules)  # these rules must not apply to this process's next command
            self._declare_files(ctx.params)
        return rest

    def _declare_files(self, values: dict[str, Any]) -> None:
        """Registers the command's inputs with `tellapart.utils.outputs`.

        Raises `UsageError` if an output is also an input or another output.
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

    A command's name may consist of two words if the first word is also a command, such as ``eval headroom`` and
    ``eval``. The two-word command is hidden; the help of the one-word command mentions it.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the group's own options, or shows the help if there are no arguments. Raises `UsageError`."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit()
        refuse_repeats(self, ctx, args)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Looks up a command, trying two-word names before one-word names."""
        if (command := self.commands.get(name := " ".join(args[:2]))) is not None:
            return name, command, args[2:]
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names in `ORDER`, followed by the remaining names in the order they were added."""
        paths = {name: f"{self.name} {name}" if ctx.parent else name for name in super().list_commands(ctx)}
        return sorted(paths, key=lambda name: ORDER.index(paths[name]) if paths[name] in ORDER else len(ORDER))


class App(typer.Typer):
    """A `typer.Typer` that uses `Command` and `VerbGroup`, and applies `with_options` to every command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"cls": VerbGroup, **settings})

    def command(self, *args: Any, **settings: Any) -> Callable[[F], F]:
        """See `typer.Typer.command`."""
        register = super().command(*args, **{"cls": Command, **settings})

        def decorator(function: F) -> F:
            register(with_options(function))
            return function

        return decorator


def refuse_repeats(command: Any, ctx: Any, args: list[str]) -> None:
    """Raises `UsageError` if an option that takes a single value is passed more than once.

    A plain flag may be repeated, unless it has an opposite (``--exact --approximate``).
    """
    if ctx.resilient_parsing:  # shell completion parses incomplete lines
        return
    try:
        _, _, order = command.make_parser(ctx).parse_args(args=list(args))
    except Exception as error:
        if getattr(error, "ctx", ctx) is None:  # a missing value of an option: the message names the command's help
            error.ctx = ctx  # type: ignore[attr-defined]
        raise
    for param, count in Counter(param for param in order if isinstance(param, TyperOption)).items():
        flag = param.is_flag and not param.secondary_opts
        if count > 1 and not (param.multiple or param.count or flag):
            names = "/".join((*param.opts[:1], *param.secondary_opts[:1]))
            raise UsageError(f"{names} was passed {count} times but takes a single value; pass it only once")
