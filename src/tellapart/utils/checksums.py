"""Checksums beside weights: a ``SHA256SUMS`` file, as ``sha256sum -c SHA256SUMS`` reads it."""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

from tellapart.errors import TellapartError

SUMS = "SHA256SUMS"
CHANGED = "copy the folder again, or remove {sums} if you changed the file yourself"


def write_sums(folder: Path) -> None:
    """Write the checksums of all files in ``folder``, in place of those that were there.

    What is no part of a model is left out: hidden files and the card. The first line, a comment for ``sha256sum``,
    says how many lines follow, so that one that is missing is noticed.
    """
    lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(_listed(folder))]
    (folder / SUMS).write_text("".join([f"# {len(lines)} files\n", *lines]), encoding="utf-8")


def check_sums(folder: Path, remedy: str = CHANGED, *, all_files: bool = False) -> None:
    """Verify the checksums of a folder; a folder without them (from the hub or 0.1) passes.

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
    """The SHA-256 of a file's bytes, in hexadecimal; cached while size and modification time stay the same."""
    found = file.stat()
    return _sha256(file.absolute(), found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _sha256(file: Path, size: int, changed_ns: int) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
