"""Finds the file of a row's picture, by its path or by the URL that it was downloaded from.

Downloaders use different naming schemes:

| name (for row 12, counting from 0, of ``https://a.org/b/cat.jpg?w=1``) | used by |
|---|---|
| ``cat.jpg`` | wget, curl |
| ``12.jpg``, ``image_12.jpg``, ``00000012.jpg`` | by row; eight digits: ClipCap's code |
| ``00000/000000012.jpg`` | img2dataset, ten thousand per folder |
| ``3632233996``, ``12_3632233996`` | CRC-32 of the address: ViLBERT's code and its descendants |
| ``….jpg`` | MD5, SHA-1 or SHA-256 of the address |

The suffix can be any picture suffix or none. The scheme is inferred from the existing files.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tellapart.data.pictures import FilePicture, picture_file, picture_in
from tellapart.data.records import sole
from tellapart.errors import UsageError

GUESSED_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", "")
ENOUGH_HITS = 200  # number of files that are enough to determine the naming scheme
MOST_ROWS = 5_000  # maximum number of rows to examine if hardly any file exists
MAX_PATH = 4096  # maximum number of characters in a path
Naming = Callable[[str, int], str]


def url_file_name(url: str) -> str:
    """Returns the file name in a URL: ``cat.jpg`` for ``https://a.org/b/cat.jpg?w=1``."""
    try:
        return Path(unquote(urlsplit(url).path)).name  # only a name, even if the URL encodes slashes
    except ValueError:  # not a URL
        return ""


def _crc(url: str) -> int:
    return zlib.crc32(url.encode())


NAMINGS: dict[str, Naming] = {  # in case of a tie, the first one is used
    "crc": lambda url, row: str(_crc(url)),
    "row and crc": lambda url, row: f"{row}_{_crc(url)}",
    "md5": lambda url, row: hashlib.md5(url.encode(), usedforsecurity=False).hexdigest(),
    "sha1": lambda url, row: hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest(),
    "sha256": lambda url, row: hashlib.sha256(url.encode()).hexdigest(),
    "img2dataset": lambda url, row: f"{row // 10_000:05d}/{row:09d}",
    "nine digits": lambda url, row: f"{row:09d}",
    "eight digits": lambda url, row: f"{row:08d}",
    "image_row": lambda url, row: f"image_{row}",
    "name in URL": lambda url, row: Path(url_file_name(url)).stem,
    "row": lambda url, row: str(row),
}


class DownloadedPictures:
    """Files in a folder, found by the paths or URLs in the rows of a table."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._scheme = "name in URL"  # a key of `NAMINGS`, because items are pickled and its functions cannot be

    def learn(self, values: Iterable[tuple[Any, int]]) -> None:
        """Chooses the naming scheme that finds the most files for the first rows, given as (value, row number from
        0). Values other than URLs are ignored.
        """
        hits: Counter[str] = Counter()
        for value, row in islice(values, MOST_ROWS):
            for url in value if isinstance(value, list) else [value]:
                if isinstance(url, str) and "://" in url[:12]:
                    hits.update(scheme for scheme, naming in NAMINGS.items() if self._find(naming, url, row))
            if max(hits.values(), default=0) >= ENOUGH_HITS:
                break
        if hits:
            self._scheme = max(NAMINGS, key=lambda scheme: hits[scheme])

    def picture(self, value: Any, row: int, where: str) -> tuple[FilePicture, str]:
        """Returns the picture for a path or URL, and its default id. ``row``: the row number, counting from 0."""
        value = sole(value, where)
        is_url = isinstance(value, str) and "://" in value[:12]
        if not isinstance(value, str) or not (is_url or 0 < len(value.strip()) <= MAX_PATH):
            raise UsageError(f"{where}: expected the path of a picture, got {str(value)[:40]!r}; add image=COLUMN")
        value = value.strip()
        if not is_url:
            return picture_in(self._folder, value), value
        naming = NAMINGS[self._scheme]
        path = self._find(naming, value, row) or self._folder / (
            naming(value, row) + (Path(url_file_name(value)).suffix or GUESSED_SUFFIXES[0])
        )
        return picture_file(path), path.relative_to(self._folder).as_posix()

    def _find(self, naming: Naming, url: str, row: int) -> Path | None:
        stem, suffix_of_url = naming(url, row), Path(url_file_name(url)).suffix
        suffixes = GUESSED_SUFFIXES if suffix_of_url in GUESSED_SUFFIXES else (suffix_of_url, *GUESSED_SUFFIXES)
        for suffix in suffixes if stem else ():
            path = f"{self._folder}/{stem}{suffix}"
            if os.path.isfile(path):  # noqa: PTH113 (a Path for every name takes longer than the look)
                return Path(path)
        return None
