"""The ledger: every answer is on disk before it is used, so that an interrupted job repeats no request.

One JSON object a line, appended: ``{"key": …, "stage": …, "model": …, "id": …, "text": …, "finish": …}``, and its
tokens. The key is the address of the request (`address`), so the file is a map from requests to answers: the order of
its lines means nothing, the first line of a key holds, and two ledgers may be joined by ``cat``.

- **Group commit.** A thread that has an answer puts it in line; the first in line writes what all have, in one write,
  and flushes it to disk (fsync) for all. `put` returns when its own answer is there.
- **A torn last line**, which a killed process or a full disk leaves, is cut off by the next who holds the lock; a whole
  answer that only lacks its line break gets it. A file without answers that begins as something else is refused.
- **Several processes** may write one ledger: writing, flushing and cutting happen under a lock of the file.
- **Memory stays flat**: where each answer lies is in a private SQLite table in a temporary file,
  made anew from the file at opening and gone with the process; the answers themselves are only in the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sqlite3
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType

from tellapart.boost.types import Answer, Request, Stage
from tellapart.errors import TellapartError, UsageError
from tellapart.types import Item
from tellapart.utils.files import write_errors
from tellapart.utils.messages import parse_json, say

CACHE_KB = 512
CHUNK = 1 << 20
BEGINS = b'{"key": "'


def address(stage: Stage, item: Item, request: Request, attempt: int) -> str:
    """The key of the answer to a request: 128 bits, as 32 hexadecimal digits.

    Of the stage and its whole prompt, the model's name, the picture's content, the references, the request with its
    settings, and which try it is. Not of the server's address, nor of `Request.truth`, nor of how many choices were
    asked for at once. Raises `PictureError`.
    """
    top_p = 1.0 if request.top_p is None else request.top_p  # as older ledgers have it
    content: dict[str, object] = {
        "messages": [[message.role, message.text] for message in request.messages],
        "shown": request.picture.key() if request.picture is not None else None,
        "settings": [request.temperature, request.max_tokens, top_p, request.seed, list(request.stop)],
    }
    wanted = [name for name, asked in (("logprobs", request.logprobs), ("scored", request.scored)) if asked]
    content |= {"wanted": wanted} if wanted else {}
    of = [stage.name, stage.prompt, stage.backend.name, item.picture.key(), list(item.references), content, attempt]
    return hashlib.blake2b(json.dumps(of).encode(), digest_size=16).hexdigest()


@dataclass(slots=True)
class _Waiting:
    """An answer on its way to disk. ``stands``: what the ledger holds for its key in the end."""

    key: str
    line: bytes
    stands: Answer | None = None


class Ledger:
    """Answers by the address of their request. Several threads may use one; several processes one file each opened.

    Raises `UsageError` for a file of something else, which stays as it is, and `TellapartError` where the file cannot
    be read or written. Use as a context manager, or call `close`.
    """

    def __init__(self, path: Path, file: int, read: FileIO, table: sqlite3.Connection) -> None:
        self.path, self._file, self._read, self._table = path, file, read, table
        self._line = threading.Lock()  # of what waits
        self._index = threading.Lock()  # of the table and of reading the file
        self._commit = threading.Lock()  # one thread at a time writes
        self._waiting: list[_Waiting] = []
        self._end = 0  # up to where the file is in the table
        self._unread = 0

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Open the file, which is made where it is not there, and read what it holds."""
        with _write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # O_APPEND: what is written goes behind whatever another process has written since.
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            _sync_folder(path.parent)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise UsageError(f"{path}: not a regular file; name another with --ledger")
            ledger = cls(path, file, path.open("rb", buffering=0), _new_table())
            with _write_errors(path), ledger._locked():
                ledger._catch_up()
        except BaseException:
            os.close(file)
            raise
        if ledger._unread:
            say(f"{path}: {ledger._unread:,} lines could not be read; their requests are sent again")
        return ledger

    def get(self, key: str) -> Answer | None:
        """The answer under an address, or None."""
        with self._index:
            row = self._table.execute("SELECT start, size FROM at WHERE key = ?", (bytes.fromhex(key),)).fetchone()
            if row is None:
                return None
            self._read.seek(row[0])
            line = self._read.read(row[1])
        value = parse_json(line)
        tokens = tuple((str(text), float(log_p)) for text, log_p in value.get("tokens", ()))
        return Answer(value["text"], value["prompt_tokens"], value["completion_tokens"], value["finish"], tokens)

    def put(self, key: str, answer: Answer, note: Mapping[str, str]) -> Answer:
        """Keep an answer; returns when it is on disk, with what stands (an answer kept earlier stays).

        ``note`` goes into the line for people: which stage, model and item.
        """
        return self.put_all([(key, answer, note)])[0]

    def put_all(self, entries: Sequence[tuple[str, Answer, Mapping[str, str]]]) -> list[Answer]:
        """Keep several answers, by one flush; otherwise as `put`."""
        waiting = [_Waiting(key, _line_of(key, answer, note)) for key, answer, note in entries]
        with self._line:
            self._waiting += waiting
        with self._commit:  # most who wait here are served by the one before them
            if any(one.stands is None for one in waiting):
                self._write_all()
        return [one.stands for one in waiting if one.stands is not None]

    def __len__(self) -> int:
        with self._index:
            return int(self._table.execute("SELECT count(*) FROM at").fetchone()[0])

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. All answers are on disk already."""
        with self._commit, self._index:
            self._table.close()
            self._read.close()
            os.close(self._file)

    def _write_all(self) -> None:
        """Write and flush what waits: one write, one flush. Called by one thread at a time."""
        with self._line:
            group, self._waiting = self._waiting, []
        try:
            with _write_errors(self.path), self._locked():
                self._append(group)
        except BaseException:
            with self._line:  # each of the others tries for itself
                self._waiting = group + self._waiting
            raise
        for waiting in group:
            waiting.stands = self.get(waiting.key)

    def _append(self, group: list[_Waiting]) -> None:
        """Put the lines of a group behind the file's end, and flush them. The lock is held."""
        self._catch_up()
        fresh: dict[str, bytes] = {}
        for waiting in group:
            if self.get(waiting.key) is None:
                fresh.setdefault(waiting.key, waiting.line)
        data = memoryview(b"".join(fresh.values()))
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise
        self._catch_up()

    def _catch_up(self) -> None:
        """Enter into the table what the file has more of; cut off a torn last line. The lock is held."""
        size = os.fstat(self._file).st_size
        if size < self._end:
            raise TellapartError(f"{self.path}: has become shorter while in use; leave it alone, and start again")
        with self._index:
            self._read.seek(self._end)
            rest = b""
            # Not more than there is: threads that each set aside a megabyte for some lines leave memory in pieces.
            while chunk := self._read.read(min(CHUNK, size - self._read.tell())):
                *lines, rest = (rest + chunk).split(b"\n")
                self._enter(lines)
            self._table.commit()
        if size and not len(self) and _key(rest) is None:
            self._refuse_another_kind()
        if rest and _key(rest) is not None:  # whole, as an editor or a copy leaves it
            os.write(self._file, b"\n")
            self._catch_up()
        elif rest:
            os.ftruncate(self._file, self._end)

    def _refuse_another_kind(self) -> None:
        """Raise `UsageError` for a file that holds no answers, unless it begins as a torn one does."""
        head = os.pread(self._file, len(BEGINS) + 32, 0)
        key = head[len(BEGINS) :]
        if not (BEGINS.startswith(head[: len(BEGINS)]) and re.fullmatch(rb"[0-9a-f]*", key)):
            raise UsageError(
                f"{self.path}: not a ledger, whose lines begin with {BEGINS.decode()}…; it stays as it is; name "
                "another file with --ledger"
            )

    def _enter(self, lines: list[bytes]) -> None:
        """Whole lines, from `_end` on. The first line of a key holds."""
        for line in lines:
            if (key := _key(line)) is not None:
                row = (key, self._end, len(line))
                self._table.execute("INSERT OR IGNORE INTO at VALUES (?, ?, ?)", row)
            elif line:
                self._unread += 1
            self._end += len(line) + 1

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file, among processes."""
        try:
            import fcntl

            from tellapart.utils.files import lock_or_say
        except ImportError:  # no such locks on this system: one process for each ledger there
            yield
            return
        lock_or_say(self._file, self.path)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def _write_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    return write_errors(path, "what it holds is kept; mend that and run the same command again")


def _sync_folder(folder: Path) -> None:
    """Put a new file's name on disk, where the system can."""
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _new_table() -> sqlite3.Connection:
    """A private table in a temporary file that SQLite removes (an empty name asks for that)."""
    table = sqlite3.connect("", check_same_thread=False)
    table.execute("PRAGMA journal_mode = OFF")
    table.execute("PRAGMA synchronous = OFF")
    table.execute(f"PRAGMA cache_size = -{CACHE_KB}")
    table.execute("CREATE TABLE at (key BLOB PRIMARY KEY, start INTEGER, size INTEGER) WITHOUT ROWID")
    return table


def _line_of(key: str, answer: Answer, note: Mapping[str, str]) -> bytes:
    value: dict[str, object] = {"key": key, **note, "text": answer.text, "prompt_tokens": answer.prompt_tokens}
    value |= {"completion_tokens": answer.completion_tokens, "finish": answer.finish}
    value |= {"tokens": answer.tokens} if answer.tokens else {}
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _key(line: bytes) -> bytes | None:
    """The key of a line that holds an answer; None for any other."""
    try:
        value = parse_json(line)
        text, finish, tokens = value["text"], value["finish"], (value["prompt_tokens"], value["completion_tokens"])
        key = bytes.fromhex(value["key"])
    except (ValueError, KeyError, TypeError):
        return None
    whole = isinstance(text, str) and isinstance(finish, str) and all(type(count) is int for count in tokens)
    return key if whole and all(0 <= count < 1 << 53 for count in tokens) else None
