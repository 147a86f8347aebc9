"""Text files beside pictures: which belongs to which picture, and whether their lines are one caption or several."""

from __future__ import annotations

import itertools
import posixpath
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from tellapart.data.caption_matching import MAX_SHOWN
from tellapart.utils.messages import say

_FOREIGN = re.compile(r"(?:read[ _-]?me|licen[cs]e|copying|notice|change[ _-]?log|requirements)\b.*", re.IGNORECASE)


def sidecars(pictures: Iterable[str], texts: Iterable[str], suffixes: Sequence[str]) -> dict[str, str]:
    """Returns the text file of each picture that has one, by their paths inside a folder.

    The text has the picture's name without its suffix, or all of it, and one of ``suffixes``, the first that is there:
    ``a.txt``, ``a.jpg.txt``, ``a.TXT``. Letters such as é are the same however they are composed.
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
    """Leaves out texts about the folder, such as ``README.txt``."""
    return [text for text in texts if not _FOREIGN.fullmatch(posixpath.basename(text))]


def say_unread(folder: Path, texts: Sequence[str]) -> None:
    """Names the text files of a folder that were not read."""
    if texts:
        some = ", ".join(texts[:MAX_SHOWN]) + (", …" if len(texts) > MAX_SHOWN else "")
        say(f"{folder}: {len(texts):,} text files are beside no picture of their name and were not read: {some}")


def say_passed_over(folder: Path, texts: Iterable[str], chosen: Collection[str]) -> None:
    """Names the ``.caption`` files that were not read because the ``.txt`` of the same picture was."""
    stems = {posixpath.splitext(name)[0] for name in chosen}
    others = [text for text in texts if text.lower().endswith(".caption") and text not in chosen]
    if others := sorted(text for text in others if posixpath.splitext(text)[0] in stems):
        say(
            f"{folder}: {len(others):,} .caption files were not read, because their pictures also have a .txt: "
            f"{', '.join(others[:MAX_SHOWN])}{', …' if len(others) > MAX_SHOWN else ''}"
        )


def texts_beside(text: str, lines: str) -> list[str]:
    """Returns the captions in a text file beside a picture: its lines ("references"), or all of it as one ("one")."""
    if lines == "one":
        return [whole] if (whole := " ".join(text.split())) else []
    return [line for line in text.split("\n") if line.strip()]


def lines_in(texts: Iterable[str]) -> str:
    """Returns what lines are in the text files of a folder: "one", a caption in all, or "references", a caption each.

    The first where most files with several lines are prose (`is_prose`), as models write it.
    """
    several = [is_prose(text) for text in texts if "\n" in text.strip()]
    return "one" if 2 * sum(several) > len(several) else "references"


_NEXT_SENTENCE = re.compile(r"""[.!?]["'”’)]*\s+["'“‘(]*[A-Z]""")
_WHOLE_SENTENCE = re.compile(r"""[.!?…:]["'”’)\]]*$""")


def is_prose(text: str) -> bool:
    """Says whether lines are one text that goes on, as models write it, and not a caption each.

    So it is where lines were wrapped at one width (no first word of a line fits behind the line before), the text
    begins with a capital, some line with a small letter, and the last one ends in a stop; or where paragraphs of whole
    sentences, one of them of several, stand apart by a blank line.
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
