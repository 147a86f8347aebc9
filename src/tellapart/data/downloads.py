"""Finds the files downloaded from a list of URLs. Downloaders use different naming schemes:

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
from pathlib import Path
from urllib.parse import unquote, urlsplit

GUESSED_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", "")
ENOUGH_HITS = 200  # number of files that are enough to determine the naming scheme
MOST_ROWS = 5_000  # maximum number of rows to examine if hardly any file exists
Naming = Callable[[str, int], str]


def url_file_name(url: str) -> str:
    """Returns the file name in a URL: ``cat.jpg`` for ``https://a.org/b/cat.jpg?w=1``."""
    try:
        return Path(unquote(urlsplit(url).path)).name  # only a name, even if the URL encodes slashes
    except ValueError:  # not a URL
        return ""


def _crc(url: str) -> int:
    return zlib.crc32(url.encode())


NAMINGS: dict[str, Naming] = {
    "crc": lambda url, row: str(_crc(url)),
    "row and crc": lambda url, row: f"{row}_{_crc(url)}",
    "md5": lambda url, row: hashlib.md5(url.encode(), usedforsecurity=False).hexdigest(),
    "sha1": lambda url, row: hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest(),
    "sha256": lambda url, row: hashlib.sha256(url.encode()).hexdigest(),
    "img2dataset": lambda url, row: f"{row // 10_000:05d}/{row:09d}",
    "nine digits": lambda url, row: f"{row:09d}",
    "eight digits": lambda url, row: f"{row:08d}",
    "image_row": lambda url, row: f"image_{row}",
    "last part": lambda url, row: Path(url_file_name(url)).stem,
    "row": lambda url, row: str(row),
}


class DownloadedFiles:
    """Files in a folder, found by the URLs that they were downloaded from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._naming = NAMINGS["last part"]

    def learn(self, rows: Iterable[tuple[str, int]]) -> None:
        """Chooses the naming scheme that finds the most files for some rows, given as (URL, row number from 0)."""
        hits: Counter[str] = Counter()
        for looked, (url, row) in enumerate(rows):
            for name, naming in NAMINGS.items():
                hits[name] += self._find(naming, url, row) is not None
            if looked >= MOST_ROWS or max(hits.values()) >= ENOUGH_HITS:
                break
        if hits and (best := hits.most_common(1)[0])[1]:
            self._naming = NAMINGS[best[0]]

    def path(self, url: str, row: int) -> Path:
        """Returns the file that was downloaded from a URL, or the path that it would have."""
        found = self._find(self._naming, url, row)
        return found or self._folder / (
            self._naming(url, row) + (Path(url_file_name(url)).suffix or GUESSED_SUFFIXES[0])
        )

    def _find(self, naming: Naming, url: str, row: int) -> Path | None:
        stem = naming(url, row)
        if not stem:
            return None
        suffix_of_url = Path(url_file_name(url)).suffix
        for suffix in (suffix_of_url, *GUESSED_SUFFIXES) if suffix_of_url not in GUESSED_SUFFIXES else GUESSED_SUFFIXES:
            path = f"{self._folder}/{stem}{suffix}"
            if os.path.isfile(path):  # noqa: PTH113 (a Path for every name takes longer than the look)
                return Path(path)
        return None
