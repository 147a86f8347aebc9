"""Collects the commands: every module of this folder that has an `app` contributes a command or a group of commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from tellapart import __version__
from tellapart.cli.app import App
from tellapart.utils.allowed_code import OPTION
from tellapart.utils.checkout import git_state
from tellapart.utils.write_errors import stdout_errors

app = App(
    name="tellapart",
    help="Make image captioners say what sets a picture apart from similar ones, and measure whether they do.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # `app_of` adds the commands
FOLDER = __name__.rpartition(".")[0]


@app.callback(invoke_without_command=True)
def common(
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version and exit.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only results and errors. Works with any command.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print every step. Works with any command.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. Works with any command.")
    ] = False,
    code: Annotated[
        list[str] | None,
        typer.Option(
            OPTION,
            metavar="MODULE:FACTORY",
            help="Allow recipes and model folders to run this code. Repeatable. Works with any command.",
        ),
    ] = None,
) -> None:
    """Declares the options that every command accepts, so that ``--help`` lists them.

    `tellapart.cli.entry.run` removes them before Typer parses the command line.
    """
    if version:
        state = git_state()
        with stdout_errors():
            print(f"{__version__} (git {state})" if state else __version__)
        raise typer.Exit


def whole_app() -> App:
    """Returns the app with all commands."""
    return app_of(_groups(_modules()))


def app_of_verb(arguments: list[str]) -> App:
    """Returns the app with only the requested command, or with all commands if the first argument is not a command.

    Importing the modules of all commands would take an extra second.
    """
    name = arguments[0].replace("-", "_") if arguments else ""
    groups = list(_groups([name])) if name in _modules() else []
    return app_of(groups) if groups else whole_app()


def app_of(groups: Iterable[App]) -> App:
    """Returns the app with the commands of these groups."""
    filled = copy(app)
    filled.registered_groups = []
    for group in groups:
        filled.add_typer(group, rich_help_panel=group.rich_help_panel)  # Typer itself ignores a group's own panel
    return filled


def _modules() -> list[str]:
    """Returns the names of the other modules in this folder."""
    files = [file for folder in import_module(FOLDER).__path__ for file in Path(folder).glob("*.py")]
    return sorted({file.stem for file in files} - {"__init__", __name__.rpartition(".")[2]})


def _groups(modules: Iterable[str]) -> Iterator[App]:
    """Yields the `app` of each module that has one: a command or a group of commands."""
    for module in modules:
        group = getattr(import_module(f"{FOLDER}.{module}"), "app", None)
        if isinstance(group, App):
            yield group
