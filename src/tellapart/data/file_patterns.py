"""Lists the files in a folder or matching a pattern such as ``shard-{00..12}.tar``, in natural order."""

from __future__ import annotations

import math
import re
from pathlib import Path, PurePath

from tellapart.errors import UsageError

SYSTEM_FOLDERS = frozenset(("__MACOSX", "@eaDir", "#recycle", "$RECYCLE.BIN"))  # created by macOS, Synology and Windows


def is_hidden(inside: PurePath) -> bool:
    """Returns whether a path inside a folder is hidden, or in a hidden folder or a system folder.

    Examples: ``._1.txt``, ``.ipynb_checkpoints``, and ``@eaDir``, where Synology devices store thumbnails.
    """
    return any((part.startswith(".") and part != "..") or part in SYSTEM_FOLDERS for part in inside.parts)


def files_below(folder: Path, *patterns: str) -> list[Path]:
    """Returns the files in a folder that match the patterns, in natural order. Skips hidden files."""
    found = {file for pattern in patterns for file in folder.glob(pattern) if not is_hidden(file.relative_to(folder))}
    return sorted((file for file in found if not file.is_dir()), key=lambda file: natural_key(str(file)))


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Returns a sort key that puts ``2.jpg`` before ``10.jpg``."""
    return [(0, int(run), "") if run.isdecimal() else (1, 0, run.casefold()) for run in re.split(r"(\d+)", text)]


MOST_FILES = 1_000_000  # maximum number of names that a pattern with braces expands to
MOST_BRACES, LONGEST_NUMBER = 20, 18  # maximum number of brace pairs, and of digits


def expand_pattern(pattern: Path) -> list[Path]:
    """Expands ``shard-{00..12}.tar``, ``{a,b}.tar`` or ``shard-*.tar`` in natural order. Returns a plain path as is."""
    paths = [pattern] if pattern.exists() else [Path(written) for written in expand_braces(str(pattern))]
    found = [
        file
        for path in paths
        for file in (sorted(_glob(path), key=lambda file: natural_key(str(file))) if _is_pattern(path) else [path])
    ]
    if not found:
        raise UsageError(f"{pattern}: no matching files")
    return found


def _is_pattern(path: Path) -> bool:
    return any(mark in str(path) for mark in "*[") and not path.exists()


def _glob(path: Path) -> list[Path]:
    pattern = str(path.relative_to(path.anchor))
    found = Path(path.anchor or ".").glob(pattern)
    return [file for file in found if not file.name.startswith(".") or path.name.startswith(".")]


def expand_braces(text: str) -> list[str]:
    """Expands ``a{1..3}`` to a1, a2, a3, and ``{a,b}`` to a, b. Raises `UsageError` beyond `MOST_FILES` names."""
    pairs = re.findall(r"\{([^{}]*)\}", text)
    if len(pairs) > MOST_BRACES or math.prod(_alternatives(inside) for inside in pairs) > MOST_FILES:
        raise UsageError(f"{text} matches more than {MOST_FILES:,} files; use * instead")
    return _expand(text)


def _alternatives(inside: str) -> int:
    """Returns how many texts a pair of braces expands to, at least 1."""
    first, last = _range(inside) or ("1", "1")
    if max(len(first), len(last)) > LONGEST_NUMBER:
        return MOST_FILES + 1
    return max(1, int(last) - int(first) + 1, inside.count(",") + 1)


def _range(inside: str) -> tuple[str, str] | None:
    found = re.fullmatch(r"([0-9]+)\.\.([0-9]+)", inside)
    return (found[1], found[2]) if found else None


def _expand(text: str) -> list[str]:
    found = re.search(r"\{([^{}]*)\}", text)
    if not found:
        return [text]
    if ends := _range(found[1]):
        parts = [f"{number:0{len(ends[0])}d}" for number in range(int(ends[0]), int(ends[1]) + 1)]
    elif "," in found[1]:
        parts = found[1].split(",")
    else:
        return [text]
    return [whole for part in parts for whole in _expand(text[: found.start()] + part + text[found.end() :])]
