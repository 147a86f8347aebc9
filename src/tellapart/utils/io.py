"""Writes to the disk and to the terminal: files, locks and checksums; messages and progress on stderr.

Files: atomic writes, errors of the file system as one line, locks that name their owner, checksums beside weights; and
text of others, cleaned, and strict JSON, where a key that stands twice is an error. A lock is the kernel's (``flock``)
on a hidden file in the folder, so that a process killed at any moment leaves none behind, whatever the file says. The
file names its holder's process and host for whoever finds it locked. On a network file system that passes ``flock`` on
(NFS since Linux 2.6.12) it holds between hosts, too. Checksums are a ``SHA256SUMS`` file, as ``sha256sum -c
SHA256SUMS`` reads it. Paths are never cleaned.

Messages: names, ids and captions are untrusted: escape sequences and rich markup in them are shown as text, never
obeyed. The progress of a long job is a bar with rate and time left in a terminal, otherwise a line every 30 seconds;
nothing is shown for the first two seconds.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import math
import os
import re
import shlex
import shutil
import socket
import stat
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import rich
import rich.console
import rich.progress
import rich.segment

from tellapart.errors import TellapartError, UsageError

T = TypeVar("T")
QUIET_SECONDS = 2.0
LINE_SECONDS = 30.0
LONGEST_LINE = 2000
# What moves the cursor, ends a line, or turns the direction of writing, all of which forge a line; control characters.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def for_terminal(text: str) -> str:
    r"""Returns text as a terminal may show it: control characters, so escape sequences too, as ``\x1b``; line breaks
    stay.
    """
    return text if text.isprintable() else _HIDDEN.sub(_escaped, text)


def single_line(text: str) -> str:
    """Returns a message on one line of at most `LONGEST_LINE` characters, fit for a terminal."""
    line = for_terminal(" ".join(text.split()))
    if len(line) <= LONGEST_LINE:
        return line
    kept = LONGEST_LINE // 2
    return f"{line[:kept]} … ({len(line) - 2 * kept:,} characters) … {line[-kept:]}"


def json_text(value: Any) -> str:
    """Returns JSON on one line that any terminal, pipe and parser takes: what `for_terminal` escapes is ``\\u…``
    here.
    """
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def json_value(value: Any, places: int | None = None) -> Any:
    """Returns a value as JSON can hold it: null for a number that is not finite, numpy's numbers as Python's, lists.

    ``places``: decimals that floats are rounded to; None: none.
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
    """The amount that a command prints: results and errors only, what a user needs to know, or every step."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_verbosity = Verbosity.NORMAL


def typed_command() -> str:
    """Returns the command line of this process, quoted for a shell; pages and runs record it.

    A byte of a file's name that is not UTF-8 is written as ``\\udcff``, for text files cannot hold it.
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
    """`say`, once in a process for each line."""
    say(line)


def detail(line: str) -> None:
    """Prints a line on stderr if ``--verbose`` is set."""
    if _verbosity >= Verbosity.VERBOSE:
        print(for_terminal(line), file=sys.stderr, flush=True)


def console(**options: Any) -> rich.console.Console:
    """Returns a rich console without markup and escape sequences in text. ``options``: those of
    `rich.console.Console`.
    """

    class Plain(rich.console.Console):
        def render_str(self, text: str, **more: Any) -> Any:  # before its width is measured
            return super().render_str(for_terminal(text), **more)

        def render(self, *arguments: Any, **more: Any) -> Any:
            for segment in super().render(*arguments, **more):
                yield segment if segment.control else rich.segment.Segment(for_terminal(segment.text), segment.style)

    return Plain(markup=False, emoji=False, highlight=False, **options)


class Progress:
    """``with Progress(total, "encoding") as progress: … progress.advance(64)``.

    ``total`` None: unknown, so only count and rate are shown. ``done``: the number already done, which counts
    for the total and not for the rate. ``note``: shown behind the count; may be set at any time.
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
        """Record that ``count`` more are done."""
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
        """The state after ``seconds`` in one line of text."""
        rate, note = self._rate(seconds), f"; {self.note}" if self.note else ""
        if self.total is None:
            return f"{self.label}: {self.done:,}, {rate:.1f}/s{note}"
        left = f"{_clock((self.total - self.done) / rate)} left" if rate > 0 else "time left unknown"
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
            self._bar.start_task(self._task)  # what was done before does not count for the rate
        rate = self._rate(now - self._started)
        self._bar.update(self._task, completed=self.done, rate=f"{rate:,.1f}/s", note=self.note)


def track(iterable: Iterable[T], total: int | None = None, label: str = "", *, enabled: bool = True) -> Iterator[T]:
    """Iterate and show the progress. ``total`` defaults to its length where it has one."""
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


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


@contextlib.contextmanager
def write_errors(path: Path, remedy: str, when_full: str | None = None) -> Iterator[None]:
    """Turns an `OSError` into a `TellapartError` of one line: the path, the cause, and ``remedy``.

    ``when_full`` replaces ``remedy`` where the disk or the quota is full.
    """
    try:
        yield
    except OSError as error:
        full = when_full is not None and error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise TellapartError(f"{path}: {error.strerror or error}; {when_full if full else remedy}") from None


@contextlib.contextmanager
def stdout_errors() -> Iterator[None]:
    """Turns an error of writing to stdout, which names no file, into a `TellapartError` that says so."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # of ``| head``: a quiet end
        raise
    except OSError as error:
        raise TellapartError(f"stdout: {error.strerror or error}; what was to be printed is not there") from None


def writable_file(path: Path) -> Path:
    """Returns where a file of this name is written: through symbolic links.

    Raises `UsageError` for a folder, a device, a pipe or a socket, which a file written whole would replace.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # new, or a link to what is not there yet
        return path.resolve() if path.is_symlink() else path
    except OSError as error:
        raise TellapartError(f"{path}: cannot be written ({error.strerror or error}); name another file") from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path}: is a folder; name a file such as {path / 'result'}")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: a device, pipe or socket; name a regular file, or a new one")
    return path.resolve() if path.is_symlink() else path


def replace_text(path: Path, text: str, *, sync: bool = True, errors: str = "strict") -> None:
    """`replace_file` with UTF-8 text. ``errors``: the error handler of `str.encode`."""
    replace_file(path, lambda new: new.write_text(text, encoding="utf-8", errors=errors, newline="\n"), sync=sync)


def replace_file(path: Path, write: Callable[[Path], Any], *, sync: bool = True) -> None:
    """Writes a file atomically: readers see the old content or the new, never a part.

    ``write`` makes a temporary file beside ``path``, which is flushed to disk (skip this with ``sync=False`` for very
    many files) and renamed. A symbolic link stays, and the file that it names is written. A file that is there keeps
    its mode. Raises `OSError`; see `write_errors` and `writable_file`.
    """
    path = writable_file(path)
    temporary = temporary_beside(path)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    try:
        if mode is not None:  # before there is anything in it to read
            temporary.touch()
            temporary.chmod(mode | stat.S_IWUSR)
        write(temporary)
        if mode is not None:
            temporary.chmod(mode)
        if sync:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # a full disk, a limit of the shell: the system names none
            error.filename = str(path)
        raise
    finally:
        with contextlib.suppress(OSError):  # the first error is the one to report
            temporary.unlink(missing_ok=True)


def temporary_beside(path: Path) -> Path:
    """The hidden name of a file or folder on its way to ``path``: no longer than a name may be where that is none.

    What processes that were killed left under such names in the same folder is removed.
    """
    _remove_left(path.parent.absolute())
    begins = os.fsdecode(os.fsencode(path.name)[:200])
    return path.with_name(f".{begins}.{_here()}.{os.getpid()}")


@functools.cache
def _here() -> str:
    """Returns 8 hexadecimal digits of where a process id means a process: this host, and the container on it."""
    container = ""
    with contextlib.suppress(OSError):
        container = str(Path("/proc/self/ns/pid").stat().st_ino)
    return f"{zlib.crc32(f'{socket.gethostname()} {container}'.encode()):08x}"


@functools.cache
def _remove_left(folder: Path) -> None:
    """Removes what killed processes of this host left in a folder; once in a process, for it may hold very many
    files."""
    left = re.compile(rf"\..+\.{_here()}\.(\d+)(\.[0-9a-f]{{8}})?", re.DOTALL)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if (named := left.fullmatch(entry.name)) and not _is_running(int(named[1])):
                with contextlib.suppress(OSError):
                    shutil.rmtree(entry) if entry.is_dir(follow_symlinks=False) else Path(entry).unlink()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def readable_weights(folder: Path) -> None:
    """Gives the safetensors files in and below ``folder`` the mode of a new file (644 with the usual umask).

    safetensors makes them readable by their owner alone. Reading the umask would change it for all threads, so the mode
    is taken from a temporary file.
    """
    probe = temporary_beside(folder / "mode")
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for file in folder.rglob("*.safetensors"):
        file.chmod(mode)


LOCK = ".lock"
LOCK_BEGINS = b'{"process": '
POLL_SECONDS = 0.5
MOMENT_SECONDS = 2.0


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool, name: str = LOCK) -> Iterator[None]:
    """Holds ``folder`` for this process alone. It is made if it is not there, and removed again if it then is empty and
    nobody waited for it.

    Where another process holds it: with ``wait``, say who and wait; else raise a `UsageError` that says who. ``name``:
    of the lock's file, where only a part of the folder is held.
    """
    made = missing_folders(folder)
    file = _acquired(folder, wait, name)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)
        os.close(file)
        with contextlib.suppress(OSError):  # not empty: it stays
            for each in made:
                each.rmdir()


def lock_or_say(file: int, path: Path) -> None:
    """Takes the lock of an open file. Where this takes more than a moment, a line names the processes that use it."""
    with contextlib.suppress(BlockingIOError, PermissionError):
        return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    told = threading.Timer(
        MOMENT_SECONDS, lambda: say(f"waiting for the lock of {path}, in use by {processes_using(path)}")
    )
    told.daemon = True
    told.start()
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    finally:
        told.cancel()


def processes_using(path: Path) -> str:
    """Returns the other processes of this machine that have a file open, as ``process 123 (tellapart boost …)``."""
    found, real = [], str(path.resolve())
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended since, or another user's
            opened = {str(link.readlink()) for link in (folder / "fd").iterdir()}
            if real in opened and folder.name != str(os.getpid()):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                found.append(f"process {folder.name} ({' '.join(command.split())[:80]})")
    return ", ".join(found) or "another process"


def missing_folders(folder: Path) -> list[Path]:
    """``folder`` and those above it that are not there, the innermost first."""
    found = []
    for each in (folder, *folder.parents):
        if each.exists():
            break
        found.append(each)
    return found


def lock_holder(folder: Path, name: str = LOCK) -> str:
    """Returns the owner of this folder's lock, as ``process 123 on host a``."""
    try:
        owner = json.loads((folder / name).read_text(encoding="utf-8"))
        return f"process {owner['process']} on host {owner['host']}, since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has just taken the lock, or just given it back
        return "another process"


def _acquired(folder: Path, wait: bool, name: str) -> int:
    announced = False
    while True:
        if (file := _attempt(folder / name)) is not None:
            return file
        if not wait:
            raise UsageError(
                f"{folder} is in use by {lock_holder(folder, name)}; wait for it, or type: --out with another folder"
            )
        if not announced:
            say(f"waiting for {folder}, which {lock_holder(folder, name)} works on")
            announced = True
        time.sleep(POLL_SECONDS)


def _attempt(path: Path) -> int | None:
    """Returns the open file once this process holds it; None where another does."""
    while True:
        file = _opened(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOTSUP):
                say(f"{path.parent}: this file system has no locks; keep other processes out of this folder")
                return file
            os.close(file)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise
        if _is_file(file, path):
            break
        os.close(file)  # the last holder removed it between our opening and locking
    if (head := os.pread(file, len(LOCK_BEGINS), 0)) and head != LOCK_BEGINS:
        os.close(file)
        raise UsageError(f"{path}: not the lock of this folder; move that file, or type: --out with another folder")
    owner = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(owner).encode(), 0)
    return file


def _opened(path: Path) -> int:
    """Returns the lock's open file, in its folder, which is made: its last holder removes both, at any moment."""
    attempts = 0
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except (FileExistsError, FileNotFoundError):  # there a moment ago, or not yet; or never: a file in its place
            attempts += 1
            if attempts == 100:
                raise


def _is_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


SUMS = "SHA256SUMS"
CHANGED = "copy the folder again, or remove {sums} if you changed the file yourself"


def write_sums(folder: Path) -> None:
    """Writes the checksums of all files in ``folder``, in place of those that were there.

    What is no part of a model is left out: hidden files and the card. The first line, a comment for ``sha256sum``,
    says how many lines follow, so that one that is missing is noticed.
    """
    lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(_listed(folder))]
    (folder / SUMS).write_text("".join([f"# {len(lines)} files\n", *lines]), encoding="utf-8")


def check_sums(folder: Path, remedy: str = CHANGED, *, all_files: bool = False) -> None:
    """Verifies the checksums of a folder; a folder without them (from the hub or 0.1) passes.

    ``all_files``: there must be checksums, and of every file. Raises `TellapartError` for a changed file, for a line
    that is missing, and for unreadable checksums; ``remedy`` says what to do.
    """
    sums = folder / SUMS
    remedy = remedy.format(sums=sums)
    if not sums.is_file():
        if all_files:
            raise TellapartError(f"{sums} is missing; {remedy}")
        return
    lines = sums.read_bytes().decode("utf-8", "replace").splitlines()
    head = re.fullmatch(r"# (\d+) files", lines[0]) if lines else None  # earlier versions wrote none
    named = {name: wanted for wanted, _, name in (line.partition("  ") for line in lines[1 if head else 0 :])}
    if not named or (head and len(named) != int(head[1])):
        raise TellapartError(f"{sums} is damaged ({len(named)} of {head[1] if head else 'its'} lines); {remedy}")
    for name, wanted in named.items():
        if len(wanted) != 64 or not name or "/" in name:
            raise TellapartError(f"{sums} is damaged; {remedy}")
        file = folder / name
        if not file.is_file():
            raise TellapartError(f"{file} is missing, and {SUMS} names it; {remedy}")
        if sha256(file) != wanted:
            raise TellapartError(f"{file} is damaged: its SHA-256 is not the one in {SUMS}; {remedy}")
    if all_files and (more := [file.name for file in _listed(folder) if file.name not in named]):
        raise TellapartError(f"{folder / more[0]} is not in {SUMS}, which is damaged; {remedy}")


def _listed(folder: Path) -> list[Path]:
    unlisted = (SUMS, "README.md")
    return [file for file in folder.iterdir() if file.is_file() and file.name not in unlisted and file.name[0] != "."]


def sha256(file: Path) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal; cached while size and modification time stay the same."""
    found = file.stat()
    return _sha256(file.absolute(), found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _sha256(file: Path, size: int, changed_ns: int) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_url(path: str) -> bool:
    """Returns whether this is an address such as ``s3://bucket/name``, not a path."""
    return ADDRESS.match(path) is not None


# Lone surrogates (half of a UTF-16 pair, which UTF-8 cannot hold) and control characters that are no white space.
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # what an id made of a path may not hold


def clean_text(text: str) -> str:
    """Returns text of a server, a file or a name as it may be kept: U+FFFD for lone surrogates, a space for control
    characters.

    White space of any kind stays, tabs and line breaks among it.
    """
    if text.isprintable():  # most captions: nothing to look for
        return text
    return _CONTROL.sub(" ", _SURROGATE.sub("\ufffd", text))


def path_id(path: str) -> str:
    """Returns the id of a file: its path, or, where this is not text, its path with percent signs as in a URL.

    Bytes that are no UTF-8, control characters and, in such a name, ``%`` itself become ``%XX``: an id fits into any
    file, and two files share one only where the name of the other has these percent signs. ``path`` is as Python gives
    it (`os.fsdecode`).
    """
    if not _NO_TEXT.search(path):
        return path
    return re.sub(f"%|{_NO_TEXT.pattern}", _percent, path)


def _percent(match: re.Match[str]) -> str:
    char, code = match[0], ord(match[0])
    escaped = bytes([code - 0xDC00]) if 0xDC80 <= code <= 0xDCFF else char.encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in escaped)


def broken(text: str) -> str | None:
    """Returns what `clean_text` would change, in a few words; None for text that is clean."""
    if text.isprintable():
        return None
    if _SURROGATE.search(text):
        return "broken text (a lone surrogate)"
    return "broken text (control characters)" if _CONTROL.search(text) else None


def parse_json(text: str | bytes) -> Any:
    """`json.loads`, but a `ValueError` too for an object with the same key twice, where Python would keep the last one,
    and for text that is nested too deeply."""
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        shown = double if len(double) <= 60 else double[:60] + "…"
        raise ValueError(f"the key {json.dumps(shown, ensure_ascii=False)} is in one object twice; keep one of the two")
    return found
