"""Checksums beside weights: a ``SHA256SUMS`` file, as ``sha256sum -c SHA256SUMS`` reads it."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from tellapart.errors import TellapartError

SUMS = "SHA256SUMS"
CHANGED = "copy the folder again, or remove {sums} if you changed the file yourself"


def write_sums(folder: Path, pattern: str = "*.safetensors") -> None:
    """Write the checksums of the files in ``folder`` that match, in place of those that were there."""
    files = sorted(file for file in folder.glob(pattern) if file.is_file() and file.name != SUMS)
    lines = [f"{sha256(file)}  {file.name}\n" for file in files]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def check_sums(folder: Path, remedy: str = CHANGED) -> None:
    """Verify the checksums of a folder; a folder without them (from the hub or 0.1) passes.

    Raises `TellapartError` for a changed file and for unreadable checksums; ``remedy`` says what to do.
    """
    sums = folder / SUMS
    if not sums.is_file():
        return
    remedy = remedy.format(sums=sums)
    for line in sums.read_bytes().decode("utf-8", "replace").splitlines():
        wanted, _, name = line.partition("  ")
        if len(wanted) != 64 or not name or "/" in name:
            raise TellapartError(f"{sums} is damaged; {remedy}")
        file = folder / name
        if not file.is_file():
            raise TellapartError(f"{file} is missing, and {SUMS} names it; {remedy}")
        if sha256(file) != wanted:
            raise TellapartError(f"{file} is damaged: its SHA-256 is not the one in {SUMS}; {remedy}")


def sha256(file: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal; cached while size and modification time stay the same."""
    found = file.stat()
    return _sha256(file.absolute(), found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _sha256(file: Path, size: int, changed_ns: int) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
