"""One process at a time in a folder: a lock that names its owner.

The lock is the kernel's (``flock``) on a hidden file in the folder, so that a process killed at any moment leaves none
behind, whatever the file says. The file names its holder's process and host for whoever finds it locked. On a network
file system that passes ``flock`` on (NFS since Linux 2.6.12) it holds between hosts, too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tellapart.errors import UsageError
from tellapart.utils.messages import say

NAME = ".lock"
BEGINS = b'{"process": '
POLL_SECONDS = 0.5
MOMENT_SECONDS = 2.0


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[None]:
    """Hold ``folder`` (made if it is not there, and removed again if it then is empty) for this process alone.

    Where another process holds it: with ``wait``, say who and wait; else raise a `UsageError` that says who.
    """
    made = missing(folder)
    file = _acquired(folder, wait)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / NAME).unlink(missing_ok=True)
        os.close(file)
        with contextlib.suppress(OSError):  # not empty: it stays
            for each in made:
                each.rmdir()


def lock_or_say(file: int, path: Path) -> None:
    """Take the lock of an open file. Where this takes more than a moment, a line names the processes that use it."""
    with contextlib.suppress(BlockingIOError, PermissionError):
        return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    told = threading.Timer(MOMENT_SECONDS, lambda: say(f"waiting for the lock of {path}, in use by {users(path)}"))
    told.daemon = True
    told.start()
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    finally:
        told.cancel()


def users(path: Path) -> str:
    """The other processes of this machine that have a file open, as ``process 123 (tellapart boost …)``."""
    found, real = [], str(path.resolve())
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended since, or another user's
            opened = {str(link.readlink()) for link in (folder / "fd").iterdir()}
            if real in opened and folder.name != str(os.getpid()):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                found.append(f"process {folder.name} ({' '.join(command.split())[:80]})")
    return ", ".join(found) or "another process"


def missing(folder: Path) -> list[Path]:
    """``folder`` and those above it that are not there, the innermost first."""
    found = []
    for each in (folder, *folder.parents):
        if each.exists():
            break
        found.append(each)
    return found


def holder(folder: Path) -> str:
    """The owner of this folder's lock, as ``process 123 on host a``."""
    try:
        owner = json.loads((folder / NAME).read_text(encoding="utf-8"))
        return f"process {owner['process']} on host {owner['host']}, since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has just taken the lock, or just given it back
        return "another process"


def _acquired(folder: Path, wait: bool) -> int:
    announced = False
    while True:
        if (file := _attempt(folder / NAME)) is not None:
            return file
        if not wait:
            raise UsageError(f"{folder} is in use by {holder(folder)}; wait for it, or type: --out with another folder")
        if not announced:
            say(f"waiting for {folder}, which {holder(folder)} works on")
            announced = True
        time.sleep(POLL_SECONDS)


def _attempt(path: Path) -> int | None:
    """The open file once this process holds it; None where another does."""
    path.parent.mkdir(parents=True, exist_ok=True)  # its last holder may have removed it, being empty
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except FileNotFoundError:  # or removes it now
        return _attempt(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_file(file, path):  # the last holder removed it between our opening and locking
            os.close(file)
            return _attempt(path)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOTSUP):
            say(f"{path.parent}: this file system has no locks; keep other processes out of this folder")
            return file
        os.close(file)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        raise
    if (head := os.pread(file, len(BEGINS), 0)) and head != BEGINS:
        os.close(file)
        raise UsageError(f"{path}: not the lock of this folder; move that file, or type: --out with another folder")
    owner = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(owner).encode(), 0)
    return file


def _is_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
