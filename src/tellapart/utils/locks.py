"""Locks a folder for one process.

A lock is a kernel lock (``flock``) on a hidden file in the folder, so a killed process leaves no lock behind. The file
tells other processes which process, on which host, holds the lock. On network file systems that forward ``flock`` (NFS
since Linux 2.6.12), the lock also works between hosts.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from tellapart.errors import UsageError
from tellapart.utils.messages import say
from tellapart.utils.write_errors import write_errors

LOCK = ".lock"
LOCK_BEGINS = b'{"process": '
POLL_SECONDS = 0.5


@contextlib.contextmanager
def locked(
    folder: Path, *, wait: bool, name: str = LOCK, remedy: str = "choose another folder, or make this one writable"
) -> Iterator[None]:
    """Locks ``folder`` for this process. Creates it if necessary, and removes it again if it is still empty and unused.

    If another process holds the lock, waits after printing a message (``wait``) or raises a `UsageError`. Both name the
    process. Raises `TellapartError` with ``remedy`` if the folder is not writable.
    ``name``: name of the lock file, to lock only part of the folder.
    """
    folders_made = missing_folders(folder)
    with write_errors(folder, remedy):
        file = _acquired(folder, wait, name)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)
        os.close(file)
        with contextlib.suppress(OSError):  # not empty
            for each in folders_made:
                each.rmdir()


def missing_folders(folder: Path) -> list[Path]:
    """Returns ``folder`` and its parents that do not exist, innermost first."""
    folders = []
    for each in (folder, *folder.parents):
        if each.exists():
            break
        folders.append(each)
    return folders


def lock_holder(folder: Path, name: str = LOCK) -> str:
    """Returns the owner of this folder's lock, as ``process 123 on host a``."""
    try:
        owner = json.loads((folder / name).read_text(encoding="utf-8"))
        return f"process {owner['process']} on host {owner['host']}, since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # the owner has just taken or released the lock
        return "another process"


def _acquired(folder: Path, wait: bool, name: str) -> int:
    announced = False
    while True:
        if (file := _attempt(folder / name)) is not None:
            return file
        if not wait:
            raise UsageError(
                f"{folder} is in use by {lock_holder(folder, name)}; wait for it to finish, or choose another folder"
            )
        if not announced:
            say(f"waiting for {folder}, which is in use by {lock_holder(folder, name)}")
            announced = True
        time.sleep(POLL_SECONDS)


def _attempt(path: Path) -> int | None:
    """Tries to take the lock. Returns the open file, or None if another process holds the lock."""
    while True:
        file = _opened(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOTSUP):
                say(
                    f"{path.parent}: this file system does not support locks; make sure that no other "
                    "process uses this folder"
                )
                return file
            os.close(file)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise
        if _is_file(file, path):
            break
        os.close(file)  # the last holder removed the file after it was opened here
    if (head := os.pread(file, len(LOCK_BEGINS), 0)) and head != LOCK_BEGINS:
        os.close(file)
        raise UsageError(f"{path} is not the lock of this folder; move this file, or choose another folder")
    owner = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(owner).encode(), 0)
    return file


def _opened(path: Path) -> int:
    """Opens the lock file, and creates its folder. The last holder may remove both at any moment."""
    attempts = 0
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except (FileExistsError, FileNotFoundError):  # removed meanwhile, or a file in place of the folder
            attempts += 1
            if attempts == 100:
                raise


def _is_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
