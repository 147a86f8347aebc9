"""The command line before typer parses it: options that may stand anywhere, and characters that no file name holds."""

from __future__ import annotations

import os

from tellapart.errors import UsageError
from tellapart.models.plugins import OPTION, allow_code, allow_named_in
from tellapart.utils.messages import Verbosity, set_verbosity

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
