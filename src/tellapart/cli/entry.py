"""Runs ``tellapart`` as a process: global flags, signals, standard streams, and errors as one line."""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
import threading
from typing import NoReturn

import typer

from tellapart.cli.launch import INTERRUPTED, LAUNCHED, end_rank
from tellapart.cli.whole_app import app_of_verb
from tellapart.errors import TellapartError, UsageError
from tellapart.utils.allowed_code import OPTION, allow_code, allow_named_in
from tellapart.utils.messages import Verbosity, set_verbosity
from tellapart.utils.terminal_text import for_terminal, single_line
from tellapart.utils.write_errors import stdout_errors

# Flags that every command accepts at any position. Maps each spelling to the long form.
GLOBAL_FLAGS = {name: name for name in ("--debug", "--quiet", "--verbose")} | {"-q": "--quiet"}


def apply_global_options(arguments: list[str], flags: set[str]) -> list[str]:
    """Sets the verbosity, allows the code that ``--allow-code`` names, and returns the remaining arguments.

    Raises `UsageError` for an argument that cannot be a path, and for conflicting flags.
    """
    for argument in arguments:
        if "\0" in argument or not (argument.isascii() or _encodable(argument)):
            raise UsageError(f"{argument[:80]!r} contains a character that is not allowed in file names; remove it")
    _apply_verbosity(flags)
    remaining = _without_allowed_code(arguments)
    allow_named_in(remaining)
    return remaining


def split_arguments(arguments: list[str]) -> tuple[list[str], set[str]]:
    """Separates `GLOBAL_FLAGS` from the other arguments. Arguments after ``--`` are never flags."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, positional = arguments[:end], arguments[end:]
    flags = {GLOBAL_FLAGS[option] for option in options if option in GLOBAL_FLAGS}
    return [option for option in options if option not in GLOBAL_FLAGS] + positional, flags


def _encodable(argument: str) -> bool:
    """Returns whether the operating system can encode the argument. Most lone surrogates cannot be encoded."""
    try:
        os.fsencode(argument)
    except UnicodeEncodeError:
        return False
    return True


def _apply_verbosity(flags: set[str]) -> None:
    """Sets the verbosity of this process and of the libraries it uses."""
    if {"--quiet", "--verbose"} <= flags:
        raise UsageError("--quiet and --verbose cannot be combined; remove one of them")
    set_verbosity(
        Verbosity.QUIET if "--quiet" in flags else Verbosity.VERBOSE if "--verbose" in flags else Verbosity.NORMAL
    )
    if flags & {"--quiet", "--verbose"}:
        level = "error" if "--quiet" in flags else "info"
        os.environ |= {"TRANSFORMERS_VERBOSITY": level, "DATASETS_VERBOSITY": level}
    if "--quiet" in flags:
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def _without_allowed_code(arguments: list[str]) -> list[str]:
    """Allows the code that ``--allow-code MODULE:FACTORY`` names, and returns the other arguments."""
    remaining: list[str] = []
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        if option == OPTION:
            allow_code(value if equals else next(words, ""))
            continue
        remaining.append(word)
        if word == "--":  # arguments after -- are never options
            remaining += words
    return remaining


def main() -> None:
    """Runs the command ``tellapart``."""
    # Nearly everything that torch and transformers allocate while they are imported lives until the end. Collecting it
    # again and again, and once more at exit, would take a second of every command.
    gc.set_threshold(100_000)
    atexit.register(_freeze)
    _open_streams()
    _stop_at_sigterm()
    if sys.flags.optimize > 1:
        fail("python -OO removes the docstrings that define the options; use python -O, or PYTHONOPTIMIZE=1", 2)
    run(app_of_verb(sys.argv[1:]))


def _freeze() -> None:
    """Skips the garbage collection at exit, except for Triton, which reports uncollected objects as leaks."""
    if "triton" not in sys.modules:
        gc.freeze()


def _open_streams() -> None:
    """Connects standard streams that the caller closed (``>&-``) to the null device.

    Otherwise, a file opened later could get stdout's file descriptor, and receive what libraries print.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free file descriptor
            if getattr(sys, name) is None:
                setattr(sys, name, open(number, "r+" if number == 0 else "w", encoding="utf-8"))  # noqa: PTH123, SIM115


def _stop_at_sigterm() -> None:
    """Handles SIGTERM (sent by ``timeout``, Slurm and containers) like Ctrl-C, so that this process cleans up.

    Forked processes still exit immediately.
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


def run(app: typer.Typer, prog_name: str = "tellapart") -> None:
    """Runs the command that was typed.

    Errors are printed as one line on stderr. The exit code is 2 for usage errors and 1 for other failures.
    """
    for stream in (sys.stdout, sys.stderr):  # characters that the terminal cannot encode must not abort a command
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments, flags = split_arguments(sys.argv[1:])
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        arguments = apply_global_options(arguments, flags)
        status = app(args=arguments or ["--help"], prog_name=prog_name, standalone_mode=False)
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
        line = f"stopped; everything saved so far is kept; to resume, run {resume}"
        fail(line, 128 + _STOPPED_BY[0])


def one_line(error: Exception) -> str | None:
    """Returns the message of an error that the user can fix, or None for a bug, which needs a traceback."""
    if isinstance(error, TellapartError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}; add --debug for the traceback"
    if isinstance(error, MemoryError):
        return f"out of memory{f' ({error})' if str(error) else ''}; reduce the workload, or use a larger machine"
    if hasattr(error, "format_message"):  # one of Typer's own errors, such as a missing argument
        context = getattr(error, "ctx", None)
        return f"{error.format_message().rstrip('.')}; see: {context.command_path if context else 'tellapart'} --help"
    return None


def fail(line: str, status: int) -> NoReturn:
    """Ends the process with a message on stderr."""
    print(for_terminal(f"tellapart: {single_line(line)}"), file=sys.stderr, flush=True)
    sys.exit(status)
