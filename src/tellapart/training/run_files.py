"""Writes the files of a run atomically, with one-line errors."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tellapart.errors import TellapartError
from tellapart.models.weight_permissions import readable_weights
from tellapart.utils.atomic_writes import replace_text, temporary_beside


@contextmanager
def writing(what: Path) -> Iterator[None]:
    """Turns write errors, such as a full or read-only disk, into a one-line `TellapartError`."""

    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if isinstance(error, RuntimeError) and "inline_container" not in str(error):
            raise  # torch.save names inline_container if the disk is full; do not catch any other RuntimeError
        cause = (
            "torch.save failed, possibly because the disk is full" if isinstance(error, RuntimeError) else str(error)
        )
        denied = isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        advice = (
            "make the folder writable"
            if denied
            else "free some disk space and run the same command again to resume (train: with --resume)"
        )
        raise TellapartError(
            f"cannot write {what}: {getattr(error, 'strerror', None) or cause}; {advice}, or set another --out"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Writes a file atomically. Raises `TellapartError` if the disk is full or not writable."""
    with writing(path):
        replace_text(path, text)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def write_folder(path: Path, fill: Callable[[Path], object]) -> None:
    """Writes a folder atomically, replacing ``path`` if it exists."""
    temporary = temporary_beside(path)
    with writing(path):
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            fill(temporary)
            readable_weights(temporary)
            for file in temporary.rglob("*"):
                if file.is_file():
                    with file.open("rb") as handle:
                        os.fsync(handle.fileno())
            shutil.rmtree(path, ignore_errors=True)
            temporary.replace(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
