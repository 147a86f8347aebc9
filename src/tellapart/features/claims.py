"""Which rows this process is making, so that another one that fills the same store does not make them too.

A claim is a lock of the kernel on one byte of ``FOLDER/claims.lock``, whose place follows from table and key. It costs
a microsecond, and a process killed at any moment leaves none behind. Two keys that share a byte (one pair in 2⁶²) would
wait for each other, which costs time and nothing else. On a file system without locks every claim is granted: rows are
made twice there, and stored once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
from pathlib import Path

_FILES: dict[Path, int] = {}  # by path; open while this process has a claim: closing drops all of its locks there
_HELD: dict[tuple[int, Path], set[int]] = {}  # by process and path: the kernel grants a process its own locks again


class Claims:
    """The claims of one pass over pictures on rows of one table."""

    def __init__(self, folder: Path, label: str) -> None:
        self._path, self._label = folder / "claims.lock", label
        self._places: dict[str, int] = {}

    def claim(self, key: str) -> bool:
        """Whether nobody else is making this row; it is this pass's then, until `release`."""
        if key in self._places:
            return True
        digest = hashlib.blake2b(f"{self._label}\0{key}".encode(), digest_size=8).digest()
        place = int.from_bytes(digest, "little") >> 2
        held = _HELD.setdefault((os.getpid(), self._path), set())
        if place in held:  # another pass of this process
            return False
        try:
            fcntl.lockf(self._file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                raise
        held.add(place)
        self._places[key] = place
        return True

    def release(self) -> None:
        """Give all claims back: the rows are in the store, or will not be made."""
        held = _HELD.get((os.getpid(), self._path), set())
        for place in self._places.values():
            with contextlib.suppress(OSError):
                fcntl.lockf(self._file(), fcntl.LOCK_UN, 1, place)
            held.discard(place)
        self._places.clear()
        if not held and self._path in _FILES:  # no lock of this process is left that closing would drop
            os.close(_FILES.pop(self._path))

    def _file(self) -> int:
        """The claims file, open. A forked process has its own locks, and the file that it inherited serves."""
        if self._path not in _FILES or not self._is_there(_FILES[self._path]):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _FILES[self._path] = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return _FILES[self._path]

    def _is_there(self, file: int) -> bool:
        """Whether the open file is still the one under its name."""
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except OSError:
            return False
