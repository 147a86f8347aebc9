"""Writes and verifies the checksums of the files in a folder, which ``sha256sum -c SHA256SUMS`` also verifies."""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

from tellapart.errors import TellapartError

SUMS = "SHA256SUMS"
CHANGED = "copy the folder again, or remove {sums} if you changed the file yourself"


def write_sums(folder: Path) -> None:
    """Writes the checksums of all files in ``folder``, replacing any existing checksums.

    Skips files that are not part of a model: hidden files and the model card. The first line (a comment for
    ``sha256sum``) contains the number of lines, so that missing lines are detected.
    """
    lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(_listed(folder))]
    (folder / SUMS).write_text("".join([f"# {len(lines)} files\n", *lines]), encoding="utf-8")


def check_sums(folder: Path, remedy: str = CHANGED, *, all_files: bool = False) -> None:
    """Verifies the checksums of a folder. A folder without checksums (from the hub or version 0.1) passes.

    ``all_files``: whether to require a checksum for every file. Raises `TellapartError`, with ``remedy``, for a changed
    file, a missing line, or unreadable checksums.
    """
    sums = folder / SUMS
    remedy = remedy.format(sums=sums)
    if not sums.is_file():
        if all_files:
            raise TellapartError(f"{sums} is missing; {remedy}")
        return
    lines = sums.read_bytes().decode("utf-8", "replace").splitlines()
    head = re.fullmatch(r"# (\d+) files", lines[0]) if lines else None  # earlier versions wrote no header
    named = {name: expected for expected, _, name in (line.partition("  ") for line in lines[1 if head else 0 :])}
    if not named or (head and len(named) != int(head[1])):
        raise TellapartError(f"{sums} is damaged ({len(named)} of {head[1] if head else 'its'} lines); {remedy}")
    for name, expected in named.items():
        if len(expected) != 64 or not name or "/" in name:
            raise TellapartError(f"{sums} is damaged; {remedy}")
        file = folder / name
        if not file.is_file():
            raise TellapartError(f"{file} is missing, but is listed in {SUMS}; {remedy}")
        if sha256(file) != expected:
            raise TellapartError(f"{file} is damaged: its SHA-256 differs from that in {SUMS}; {remedy}")
    if all_files and (more := [file.name for file in _listed(folder) if file.name not in named]):
        raise TellapartError(f"{folder / more[0]} is not listed in {SUMS}, which is damaged; {remedy}")


def _listed(folder: Path) -> list[Path]:
    unlisted = (SUMS, "README.md")
    return [file for file in folder.iterdir() if file.is_file() and file.name not in unlisted and file.name[0] != "."]


def sha256(file: Path) -> str:
    """Returns the SHA-256 of a file's bytes in hexadecimal, cached by size and modification time."""
    status = file.stat()
    return _sha256(file.absolute(), status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _sha256(file: Path, size: int, changed_ns: int) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
