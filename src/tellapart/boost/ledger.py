"""The ledger, a file of answers. Every answer is on disk before it is used, so an interrupted job never repeats a
request.

Each answer is appended as one line of JSON: ``{"key": …, "stage": …, "model": …, "id": …, "text": …, "finish": …}``,
plus the answer's tokens. The key is the request's `address`, so the file maps requests to answers. The order of the
lines does not matter, only the first line for a key counts, and ``cat`` can join two ledgers.

- **Group commit.** Threads queue their answers. The first thread writes the whole queue at once and flushes it to disk
  (fsync). `put` returns when its own answer is on disk.
- **A torn last line**, left by a killed process or a full disk, is removed by the next holder of the lock. If the last
  line is complete except for its line break, the line break is added. A file that is not a ledger is rejected.
- **Several processes** can write to one ledger: writing, flushing and truncating happen under a file lock.
- **Constant memory.** The answers' offsets are in a private SQLite table in a temporary file, which is rebuilt when
  the ledger is opened and removed when the process exits. The answers themselves are only in the ledger file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import sqlite3
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path

from tellapart.boost.types import Answer, Request, Stage
from tellapart.errors import TellapartError, UsageError
from tellapart.types import Item
from tellapart.utils.atomic_writes import sync_folder
from tellapart.utils.file_lock import lock_or_say
from tellapart.utils.messages import say
from tellapart.utils.strict_json import parse_json
from tellapart.utils.write_errors import write_errors

CACHE_KB = 512
CHUNK_BYTES = 1 << 20
BEGINS = b'{"key": "'
MAX_TOKENS = 1 << 53
Note = Mapping[str, str]  # an answer's stage, model and item, which are added to its line for human readers


def address(stage: Stage, item: Item, request: Request, attempt: int) -> str:
    """Computes the key of a request's answer: 128 bits, as 32 hexadecimal digits.

    Hashes the stage and its whole prompt, the model's name, the picture's content, the references, the request with its
    settings, and the attempt. Does not hash the server's address, `Request.truth`, or the number of choices per
    request. Raises `PictureError` if the picture cannot be read.
    """
    top_p = 1.0 if request.top_p is None else request.top_p
    content: dict[str, object] = {
        "messages": [[message.role, message.text] for message in request.messages],
        "shown": request.picture.key() if request.picture is not None else None,
        "settings": [request.temperature, request.max_tokens, top_p, request.seed, list(request.stop)],
    }
    wanted = [name for name, asked in (("logprobs", request.logprobs), ("scored", request.scored)) if asked]
    content |= {"wanted": wanted} if wanted else {}
    content |= {"schema": request.schema} if request.schema else {}
    of = [stage.name, stage.prompt, stage.backend.name, item.picture.key(), list(item.references), content, attempt]
    return hashlib.blake2b(json.dumps(of).encode(), digest_size=16).hexdigest()


class Ledger:
    """Maps request addresses to answers. Thread-safe. Several processes can open the same file.

    Raises `UsageError`, without changing the file, if it is not a ledger, and `TellapartError` if it cannot be read or
    written. Use the ledger as a context manager, or call `close`.
    """

    def __init__(self, path: Path, file: int, read: FileIO, table: sqlite3.Connection) -> None:
        self.path, self._file, self._read, self._table = path, file, read, table
        self._line = threading.Lock()  # guards the queue
        self._index = threading.Lock()  # guards the table and reads of the file
        self._commit = threading.Lock()  # held by the thread that writes
        self._waiting: list[tuple[str, bytes]] = []  # the queue: keys and lines
        self._end = 0  # end of the indexed part of the file
        self._unread = 0

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Opens the file, creates it if necessary, and indexes its answers."""
        with _write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # O_APPEND: writes go after whatever another process has written meanwhile.
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            sync_folder(path.parent)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise UsageError(f"{path} is not a regular file; specify another one with --ledger")
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
        """Returns the answer at an address, or None if there is no such answer."""
        with self._index:
            row = self._table.execute("SELECT start, size FROM at WHERE key = ?", (bytes.fromhex(key),)).fetchone()
            if row is None:
                return None
            self._read.seek(row[0])
            entry = _entry(self._read.read(row[1]))
        return None if entry is None else entry[1]

    def put(self, key: str, answer: Answer, note: Note) -> Answer:
        """Stores an answer unless the ledger already has one for this key. Returns the answer that counts, i.e. the
        earlier one if there is one, as soon as it is on disk.
        """
        return self.put_all([(key, answer, note)])[0]

    def put_all(self, entries: Sequence[tuple[str, Answer, Note]]) -> list[Answer]:
        """Stores several answers with a single flush; see `put`."""
        with self._line:
            self._waiting += [(key, _line_of(key, answer, note)) for key, answer, note in entries]
        with self._commit:  # the thread that held the lock before has usually written this thread's answers too
            if self._waiting:
                self._write_all()
        return [answer for key, _, _ in entries if (answer := self.get(key)) is not None]

    def __len__(self) -> int:
        with self._index:
            return int(self._table.execute("SELECT count(*) FROM at").fetchone()[0])

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file. All answers are already on disk."""
        with self._commit, self._index:
            self._table.close()
            self._read.close()
            os.close(self._file)

    def _write_all(self) -> None:
        """Writes the queue in a single write and flush. Only one thread may call this at a time."""
        with self._line:
            group, self._waiting = self._waiting, []
        try:
            with _write_errors(self.path), self._locked():
                self._append(group)
        except BaseException:
            with self._line:  # puts the answers back, so that the other threads can retry
                self._waiting = group + self._waiting
            raise

    def _append(self, group: list[tuple[str, bytes]]) -> None:
        """Appends a group's lines to the file, and flushes them. The caller must hold the lock."""
        self._catch_up()
        fresh: dict[str, bytes] = {}
        for key, line in group:
            if self.get(key) is None:
                fresh.setdefault(key, line)
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
        """Indexes new lines in the file, and removes a torn last line. The caller must hold the lock."""
        size = os.fstat(self._file).st_size
        if size < self._end:
            raise TellapartError(f"{self.path} was truncated by another process; run the same command again")
        with self._index:
            self._read.seek(self._end)
            rest = b""
            # Reads no more than is available. Otherwise, each thread would allocate a megabyte for a few lines, which
            # fragments memory.
            while chunk := self._read.read(min(CHUNK_BYTES, size - self._read.tell())):
                *lines, rest = (rest + chunk).split(b"\n")
                self._enter(lines)
            self._table.commit()
        if rest and _entry(rest) is not None:  # only the line break is missing, e.g. after editing or copying the file
            os.write(self._file, b"\n")
            self._catch_up()
            return
        if size and not len(self):
            self._refuse_another_kind()
        if rest:
            os.ftruncate(self._file, self._end)

    def _refuse_another_kind(self) -> None:
        """Raises `UsageError` if the file is not a ledger and cannot be the start of an interrupted first line."""
        head = os.pread(self._file, len(BEGINS) + 32, 0)
        key = head[len(BEGINS) :]
        if not (BEGINS.startswith(head[: len(BEGINS)]) and re.fullmatch(rb"[0-9a-f]*", key)):
            raise UsageError(
                f"{self.path} is not a ledger (its lines would begin with {BEGINS.decode()}…) and "
                "was not changed; specify another file with --ledger"
            )

    def _enter(self, lines: list[bytes]) -> None:
        """Indexes complete lines, the first of which starts at `_end`. For each key, only its first line counts."""
        for line in lines:
            if (entry := _entry(line)) is not None:
                row = (entry[0], self._end, len(line))
                self._table.execute("INSERT OR IGNORE INTO at VALUES (?, ?, ?)", row)
            elif line:
                self._unread += 1
            self._end += len(line) + 1

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the file lock, which excludes other processes."""
        lock_or_say(self._file, self.path)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def ledger_of(out: Path) -> Path:
    """Returns the default path of a result's ledger."""
    return out.with_name(f"{out.stem}.ledger.jsonl")


def _write_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    return write_errors(path, "stored answers are kept; fix the problem and run the same command again")


def _new_table() -> sqlite3.Connection:
    """Creates a private table in a temporary file. The empty name makes SQLite remove the file on closing."""
    table = sqlite3.connect("", check_same_thread=False)
    table.execute("PRAGMA journal_mode = OFF")
    table.execute("PRAGMA synchronous = OFF")
    table.execute(f"PRAGMA cache_size = -{CACHE_KB}")
    table.execute("CREATE TABLE at (key BLOB PRIMARY KEY, start INTEGER, size INTEGER) WITHOUT ROWID")
    return table


def _line_of(key: str, answer: Answer, note: Note) -> bytes:
    value: dict[str, object] = {"key": key, **note, "text": answer.text, "prompt_tokens": answer.prompt_tokens}
    value |= {"completion_tokens": answer.completion_tokens, "finish": answer.finish}
    value |= {"tokens": answer.tokens} if answer.tokens else {}
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _entry(line: bytes) -> tuple[bytes, Answer] | None:
    """Returns the key and the answer in a line, or None if the line is not a valid entry."""
    try:
        value = parse_json(line)
        counts = value["prompt_tokens"], value["completion_tokens"]
        tokens = tuple((str(text), float(log_p)) for text, log_p in value.get("tokens", ()))
        answer, key = Answer(value["text"], *counts, value["finish"], tokens), bytes.fromhex(value["key"])
    except (ValueError, KeyError, TypeError):
        return None
    valid = isinstance(answer.text, str) and isinstance(answer.finish, str)
    return (key, answer) if valid and all(type(count) is int and 0 <= count < MAX_TOKENS for count in counts) else None
