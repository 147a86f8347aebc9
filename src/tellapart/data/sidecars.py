"""Pairs pictures with the text files next to them, and decides whether a file contains one caption or several."""

from __future__ import annotations

import itertools
import posixpath
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from tellapart.data.file_names import is_file_name
from tellapart.data.file_patterns import natural_key
from tellapart.utils.listed_names import few
from tellapart.utils.messages import say

_FOREIGN = re.compile(r"(?:read[ _-]?me|licen[cs]e|copying|notice|change[ _-]?log|requirements)\b.*", re.IGNORECASE)


def sidecars(pictures: Iterable[str], texts: Iterable[str], suffixes: Sequence[str]) -> dict[str, str]:
    """Maps each picture to its text file, if it has one, by their paths inside a folder.

    The text file is named after the picture, with or without the picture's suffix, plus the first of ``suffixes`` that
    exists: ``a.txt``, ``a.jpg.txt``, ``a.TXT``. Different Unicode normalization forms count as equal.
    """
    files: dict[str, str] = {}
    for text in sorted(texts):
        stem, suffix = posixpath.splitext(text)
        files[unicodedata.normalize("NFC", stem) + suffix.lower()] = text
    found = {}
    for picture in pictures:
        name = unicodedata.normalize("NFC", picture)
        stems = (posixpath.splitext(name)[0], name)
        if text := next((files[key] for suffix in suffixes for stem in stems if (key := stem + suffix) in files), ""):
            found[picture] = text
    return found


def without_foreign(texts: Iterable[str]) -> list[str]:
    """Excludes files that describe the folder, such as ``README.txt``."""
    return [text for text in texts if not _FOREIGN.fullmatch(posixpath.basename(text))]


def say_ignored(folder: Path, texts: Iterable[str], chosen: Collection[str]) -> None:
    """Prints which text files in a folder were not read, because no picture has the same name, or because the picture
    also has a ``.txt``. ``chosen``: the files that were read.
    """
    others = sorted({*texts} - {*chosen}, key=natural_key)
    stems = {posixpath.splitext(name)[0] for name in chosen}
    stems |= {posixpath.splitext(stem)[0] for stem in stems if is_file_name(stem)}  # a.jpg.txt belongs to a.jpg
    unread = [text for text in others if posixpath.splitext(text)[0] not in stems]
    if unread := unread if chosen else without_foreign(unread):
        say(f"{folder}: ignored {len(unread):,} text files without a picture of the same name: {few(unread)}")
    captions = [text for text in others if text.lower().endswith(".caption") and posixpath.splitext(text)[0] in stems]
    if captions:
        say(f"{folder}: ignored {len(captions):,} .caption files whose pictures also have a .txt: {few(captions)}")


def texts_beside(text: str, lines: str) -> list[str]:
    """Returns the captions in a picture's text file: one per line ("references"), or the whole text ("one")."""
    if lines == "one":
        return [whole] if (whole := " ".join(text.split())) else []
    return [line for line in text.split("\n") if line.strip()]


def lines_in(texts: Iterable[str]) -> str:
    """Decides whether a folder's text files have one caption per file ("one") or one per line ("references").

    Returns "one" if most files with several lines are prose (`is_prose`), as models tend to write.
    """
    several = [is_prose(text) for text in texts if "\n" in text.strip()]
    return "one" if 2 * sum(several) > len(several) else "references"


_NEXT_SENTENCE = re.compile(r"""[.!?]["'”’)]*\s+["'“‘(]*[A-Z]""")
_WHOLE_SENTENCE = re.compile(r"""[.!?…:]["'”’)\]]*$""")


def is_prose(text: str) -> bool:
    """Returns whether the lines form one continuous text, as models tend to write, rather than one caption per line.

    This holds if the lines were wrapped at one width (no line's first word fits on the line before), the text begins
    with a capital, at least one line begins with a lower-case letter, and the last line ends in a full stop. It also
    holds if blank lines separate paragraphs of whole sentences, and at least one paragraph has several sentences.
    """
    lines = [line.strip() for line in text.strip().split("\n")]
    if not lines[0]:
        return False
    if "" in lines:
        several = any(_NEXT_SENTENCE.search(line) for line in lines)
        return several and all(_WHOLE_SENTENCE.search(line) for line in lines if line)
    width = max(map(len, lines), default=0)
    full = all(len(one) + 1 + len(other.split()[0]) > width for one, other in itertools.pairwise(lines))
    if not (full and lines[0][:1].isupper() and _WHOLE_SENTENCE.search(lines[-1])):
        return False
    return any(line[0].islower() for line in lines[1:])
