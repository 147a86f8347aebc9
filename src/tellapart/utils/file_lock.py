"""Locks an open file for one process, says which processes hold the lock if this takes long, and makes room for many
locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import threading
from pathlib import Path

from tellapart.errors import UsageError
from tellapart.utils.messages import say

MOMENT_SECONDS = 2.0
SPARE_FILES = 64  # open files that a write needs in addition to the locks


def lock_or_say(file: int, path: Path) -> None:
    """Locks an open file. If this takes more than a moment, prints which processes are using it."""
    with contextlib.suppress(BlockingIOError, PermissionError):
        return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    notice = threading.Timer(
        MOMENT_SECONDS, lambda: say(f"waiting for the lock on {path}, which is in use by {processes_using(path)}")
    )
    notice.daemon = True
    notice.start()
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    finally:
        notice.cancel()


def processes_using(path: Path) -> str:
    """Returns the other processes on this machine that have a file open, as ``process 123 (tellapart boost …)``."""
    processes, real = [], str(path.resolve())
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            opened = {str(link.readlink()) for link in (folder / "fd").iterdir()}
            if real in opened and folder.name != str(os.getpid()):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                processes.append(f"process {folder.name} ({' '.join(command.split())[:80]})")
    return ", ".join(processes) or "another process"


def allow_locks(count: int, what: str) -> None:
    """Raises the soft limit on open files if necessary, because each folder's lock is an open file.

    what: what is in the folders, for the message. Raises `UsageError` if the hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft // 2 >= count:
        return
    limit = soft + count if hard == resource.RLIM_INFINITY else min(soft + count, hard)
    if limit < count + SPARE_FILES:
        raise UsageError(
            f"{what} are in {count:,} folders, which have to be locked together, but a process may open at most "
            f"{hard:,} files (ulimit -Hn); run the command on fewer folders at a time, or raise the limit"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
