"""Lists the files in a folder or matching a pattern such as ``shard-{00..12}.tar``, in natural order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
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
    """Returns a sort key that puts ``2.jpg`` before ``10.jpg``. Different names never have the same key."""
    runs = [(0, int(run), "") if run.isdecimal() else (1, 0, run.casefold()) for run in re.split(r"(\d+)", text)]
    return [*runs, (-1, 0, text)]  # ``1.jpg`` and ``01.jpg``; below 0, so that ``a`` stays before ``a1``


MOST_FILES = 1_000_000  # maximum number of names that a pattern with braces expands to
MOST_BRACES = 20
_BRACES = re.compile(r"\{(?:([0-9]{1,18})\.\.([0-9]{1,18})|([^{},]*(?:,[^{},]*)+))\}")  # {00..12}, or {a,b}


def expand_pattern(pattern: Path) -> list[Path]:
    """Expands ``shard-{00..12}.tar``, ``{a,b}.tar`` or ``shard-*.tar`` in natural order. Returns a plain path as is."""
    found: list[Path] = []
    for path in [pattern] if pattern.exists() else map(Path, expand_braces(str(pattern))):
        if any(mark in str(path) for mark in "*[") and not path.exists():
            files = Path(path.anchor or ".").glob(str(path.relative_to(path.anchor)))
            shown = (file for file in files if not file.name.startswith(".") or path.name.startswith("."))
            found += sorted(shown, key=lambda file: natural_key(str(file)))
        else:
            found.append(path)
    if not found:
        raise UsageError(f"{pattern}: no matching files")
    return found


def expand_braces(text: str) -> list[str]:
    """Expands ``a{1..3}`` to a1, a2, a3, and ``{a,b}`` to a, b. Raises `UsageError` beyond `MOST_FILES` names."""
    pairs = _BRACES.findall(text)
    if any(first and int(first) > int(last) for first, last, _ in pairs):
        return []  # an empty range, which would never end inside a long one
    found = list(islice(_expand(text), MOST_FILES + 1)) if len(pairs) <= MOST_BRACES else None
    if found is None or len(found) > MOST_FILES:
        raise UsageError(f"{text} matches more than {MOST_FILES:,} files; use * instead")
    return found


def _expand(text: str) -> Iterator[str]:
    pair = _BRACES.search(text)
    if not pair:
        yield text
        return
    first, last, listed = pair.groups()
    parts = listed.split(",") if listed else (f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1))
    for part in parts:
        yield from _expand(text[: pair.start()] + part + text[pair.end() :])
