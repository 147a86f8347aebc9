"""Messages, progress and untrusted text on the terminal; strict JSON.

Names, ids and captions are untrusted: escape sequences and rich markup in them are printed as text, never interpreted.
A long job shows a progress bar with rate and remaining time in a terminal, and prints a line every 30 seconds
elsewhere. Nothing is shown during the first two seconds.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from enum import IntEnum
from types import TracebackType
from typing import Any, TypeVar

import rich
import rich.console
import rich.progress
import rich.segment

from tellapart.errors import TellapartError

T = TypeVar("T")
QUIET_SECONDS = 2.0
LINE_SECONDS = 30.0
LONGEST_LINE = 2000
# Characters that can forge a line: cursor movement, line ends, changes of text direction, and other control characters.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def for_terminal(text: str) -> str:
    r"""Escapes control characters (and thus escape sequences) for a terminal, as in ``\x1b``; keeps line breaks."""
    return text if text.isprintable() else _HIDDEN.sub(_escaped, text)


def single_line(text: str) -> str:
    """Formats a message as one line of at most `LONGEST_LINE` characters for a terminal."""
    line = for_terminal(" ".join(text.split()))
    if len(line) <= LONGEST_LINE:
        return line
    kept = LONGEST_LINE // 2
    return f"{line[:kept]} … ({len(line) - 2 * kept:,} characters) … {line[-kept:]}"


def few(names: Iterable[object], most: int = 3, separator: str = ", ") -> str:
    """Joins the first ``most`` of ``names`` and counts the rest, e.g. ``a, b, c and 5 more``."""
    texts = [str(name) for name in names]
    rest = len(texts) - most
    return separator.join(texts[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Returns the keys whose values differ or that only one of two mappings has, sorted."""
    return [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]


def json_text(value: Any) -> str:
    """Formats JSON on one line, safe for any terminal, pipe and parser: escapes as in `for_terminal`, with ``\\u…``."""
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def json_value(value: Any, places: int | None = None) -> Any:
    """Converts a value for JSON: non-finite numbers to null, NumPy numbers to Python numbers, tuples to lists.

    ``places``: decimal places to round floats to; None: no rounding.
    """
    if isinstance(value, Mapping):
        return {key: json_value(inner, places) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner, places) for inner in value]
    if hasattr(value, "dtype"):
        value = value.item()
    if isinstance(value, float):
        return None if not math.isfinite(value) else value if places is None else round(value, places)
    return value


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class Verbosity(IntEnum):
    """How much a command prints: only results and errors, what a user needs to know, or every step."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_verbosity = Verbosity.NORMAL


def typed_command() -> str:
    """Returns the command line of this process, quoted for a shell, to be recorded in pages and runs.

    A byte of a file name that is not valid UTF-8 is written as e.g. ``\\udcff``, because text files cannot store it.
    """
    line = shlex.join(["tellapart", *sys.argv[1:]])
    return line.encode("utf-8", "backslashreplace").decode()


def set_verbosity(verbosity: Verbosity) -> None:
    """Sets the verbosity of this process."""
    global _verbosity
    _verbosity = verbosity


def quiet() -> bool:
    """Returns whether to print results and errors only: no messages, no progress bars."""
    return _verbosity == Verbosity.QUIET


def say(line: str) -> None:
    """Prints a line on stderr, unless ``--quiet`` is set."""
    if _verbosity >= Verbosity.NORMAL:
        print(for_terminal(line), file=sys.stderr, flush=True)


@functools.cache
def say_once(line: str) -> None:
    """Prints each distinct line with `say` once per process."""
    say(line)


def detail(line: str) -> None:
    """Prints a line on stderr if ``--verbose`` is set."""
    if _verbosity >= Verbosity.VERBOSE:
        print(for_terminal(line), file=sys.stderr, flush=True)


def console(**options: Any) -> rich.console.Console:
    """Creates a rich console that prints markup and escape sequences as text; takes the options of `Console`."""

    class Plain(rich.console.Console):
        def render_str(self, text: str, **more: Any) -> Any:  # before rich measures its width
            return super().render_str(for_terminal(text), **more)

        def render(self, *arguments: Any, **more: Any) -> Any:
            for segment in super().render(*arguments, **more):
                yield segment if segment.control else rich.segment.Segment(for_terminal(segment.text), segment.style)

    return Plain(markup=False, emoji=False, highlight=False, **options)


class Progress:
    """A progress display: ``with Progress(total, "encoding") as progress: … progress.advance(64)``.

    total: the total number; None if unknown, which shows only count and rate.
    done: the number already done, which counts towards the total but not towards the rate.
    note: text after the count; may be set at any time.
    """

    def __init__(self, total: int | None, label: str, *, done: int = 0, enabled: bool = True) -> None:
        self.total, self.label, self.enabled = total, label, enabled and not quiet()
        self.done = self._before = done
        self.note = ""
        self._started = self._last_line = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int = 1) -> None:
        """Advances by ``count``."""
        self.done += count
        if not self.enabled:
            return
        now = time.monotonic()
        if sys.stderr.isatty():
            self._advance_bar(now)
        elif now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            say(self.line(now - self._started))

    def line(self, seconds: float) -> str:
        """Formats the progress after ``seconds`` as one line of text."""
        rate, note = self._rate(seconds), f"; {self.note}" if self.note else ""
        if self.total is None:
            return f"{self.label}: {self.done:,}, {rate:.1f}/s{note}"
        left = f"{clock((self.total - self.done) / rate)} left" if rate > 0 else "time left unknown"
        return f"{self.label}: {self.done:,} of {self.total:,}, {rate:.1f}/s, {left}{note}"

    def _rate(self, seconds: float) -> float:
        return (self.done - self._before) / seconds if seconds > 0 else 0.0

    def _advance_bar(self, now: float) -> None:
        if self._bar is None:
            if now - self._started < QUIET_SECONDS:
                return
            self._bar = _rich_bar()
            self._bar.start()
            self._task = self._bar.add_task(self.label, total=self.total, rate="", note="", start=False)
            self._bar.update(self._task, completed=self._before)
            self._bar.start_task(self._task)  # earlier work does not count towards the rate
        rate = self._rate(now - self._started)
        self._bar.update(self._task, completed=self.done, rate=f"{rate:,.1f}/s", note=self.note)


def track(iterable: Iterable[T], total: int | None = None, label: str = "", *, enabled: bool = True) -> Iterator[T]:
    """Iterates over ``iterable`` and shows the progress. ``total`` defaults to its length, if it has one."""
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    with Progress(total, label, enabled=enabled) as progress:
        for value in iterable:
            yield value
            progress.advance()


def _rich_bar() -> Any:
    columns = [
        rich.progress.TextColumn("{task.description}", markup=False),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TextColumn("{task.fields[rate]}"),
        rich.progress.TimeRemainingColumn(),
        rich.progress.TextColumn("{task.fields[note]}", markup=False),
    ]
    return rich.progress.Progress(*columns, console=console(stderr=True), transient=True)


def clock(seconds: float) -> str:
    """Formats seconds as a time such as ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@contextlib.contextmanager
def stdout_errors() -> Iterator[None]:
    """Turns an error in writing to stdout, which names no file, into a `TellapartError` that mentions stdout."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # e.g. ``| head``: exit silently
        raise
    except OSError as error:
        raise TellapartError(f"stdout: {error.strerror or error}; the output is incomplete") from None


# Lone surrogates (half of a UTF-16 pair, which UTF-8 cannot encode) and control characters that are not white space.
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")


def clean_text(text: str) -> str:
    """Cleans untrusted text: replaces lone surrogates with U+FFFD and control characters with spaces.

    Keeps all white space, including tabs and line breaks.
    """
    if text.isprintable():  # true of most captions
        return text
    return _CONTROL.sub(" ", _SURROGATE.sub("\ufffd", text))


def broken(text: str) -> str | None:
    """Describes briefly what `clean_text` would change; returns None for clean text."""
    if text.isprintable():
        return None
    if _SURROGATE.search(text):
        return "broken text (a lone surrogate)"
    return "broken text (control characters)" if _CONTROL.search(text) else None


def parse_json(text: str | bytes) -> Any:
    """Parses JSON like `json.loads`, but also raises `ValueError` for text that is nested too deeply and for duplicate
    keys, of which `json.loads` keeps the last.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        shown = double if len(double) <= 60 else double[:60] + "…"
        raise ValueError(
            f"the key {json.dumps(shown, ensure_ascii=False)} occurs twice in one object; remove one of them"
        )
    return table
