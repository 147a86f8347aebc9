"""The command line before typer parses it: options that may stand anywhere, and characters that no file name holds.

The command ``tellapart``: the app with all verbs, and how errors end a command.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from tellapart.cli.common import FORMER_VERBS, App
from tellapart.cli.launch import INTERRUPTED, LAUNCHED, end_rank
from tellapart.errors import TellapartError, UsageError
from tellapart.models.plugins import OPTION, allow_code, allow_named_in
from tellapart.utils.messages import Verbosity, set_verbosity
from tellapart.utils.text import for_terminal, single_line

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
    """Whether the operating system can hold the text: a lone surrogate that stands for no byte cannot be typed."""
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
        from tellapart import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run ``tellapart COMMAND``."""
    run(app_with_one_command)


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
        fail("stopped; what was saved stays, and the same command goes on (train: with --resume)", INTERRUPTED)


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
