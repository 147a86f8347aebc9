"""Stores METEOR's tables as a compact, memory-mapped index on disk, so that programs start without delay.

The tables (WordNet synonyms, function words, paraphrases) come with the pycocoevalcap package, in a jar and a gzip file
with 270 MB of text. On first use, they are converted, with a progress bar, to plain arrays keyed by 64-bit hashes of
words and phrases, which are stored in ``$TELLAPART_CACHE/meteor/KEY``. KEY identifies the content of the source files
and the index layout.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import importlib.util
import itertools
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.errors import MissingExtra, TellapartError
from tellapart.metrics.word_hashes import find_hashes, word_hash
from tellapart.utils.cache_folder import cache_folder
from tellapart.utils.locks import locked
from tellapart.utils.progress import Progress

VERSION = 1
_REMEDY = "set TELLAPART_CACHE to a writable folder with 100 MB of free space"
LONGEST = 7  # number of words in the table's longest phrase
_JAR, _PARAPHRASES = "meteor-1.5.jar", "data/paraphrase-en.gz"
_NUMERIC = "#NUMERIC_ONLY#"  # marks abbreviations that keep their full stop only before a number
_PAIRS_AT_ONCE = 50_000
# WordNet's rules that reduce an inflected form to its base form.
_ENDINGS = [
    ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"), ("ies", "y"),
    ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", ""), ("er", ""), ("est", ""),
    ("er", "e"), ("est", "e"),
]  # fmt: skip
PLACES = np.random.default_rng(20140626).integers(1, 2**63, LONGEST, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


@dataclass(frozen=True)
class Lists:
    """Variable-length rows of numbers. Row r is ``value[start[r]:start[r + 1]]``."""

    key: np.ndarray  # sorted hashes; a hash's index is its row
    start: np.ndarray
    value: np.ndarray

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """Returns each hash's row, or −1 for an unknown hash."""
        return find_hashes(self.key, hashes)

    def row(self, number: int) -> list[int]:
        row: list[int] = self.value[self.start[number] : self.start[number + 1]].tolist()
        return row


@dataclass(frozen=True)
class Tables:
    """METEOR's linguistic data for English.

    paraphrases: maps each phrase to its paraphrases' rows, in table order.
    synsets: maps each base form to its synsets.
    words: maps each word in these tables to the synsets of all its forms.
    stem_W: the hash of each word's stem.
    """

    function_words: frozenset[str]
    abbreviations: frozenset[str]
    before_numbers: frozenset[str]
    paraphrases: Lists
    synsets: Lists
    words: Lists
    stem_W: np.ndarray


def index_folder() -> Path:
    """Returns the index folder for the installed tables. The folder may not exist yet. Raises `MissingExtra`."""
    return cache_folder() / "meteor" / _key(_sources())


_NOT_THERE = (OSError, ValueError, TypeError, KeyError)  # the index is absent or damaged


def open_tables() -> Tables:
    """Opens the index, after building it if necessary. Raises `MissingExtra` if pycocoevalcap is not installed."""
    jar, paraphrases = _sources()
    folder = index_folder()
    home = folder.parent
    with contextlib.suppress(*_NOT_THERE):
        return _read(folder)
    try:
        # Waits, because another process may be building the index, which takes ten seconds.
        with locked(home, wait=True, remedy=_REMEDY):
            with contextlib.suppress(*_NOT_THERE):
                return _read(folder)
            made = Path(tempfile.mkdtemp(prefix=".making-", dir=home))
            try:
                _write(made, jar, paraphrases)
                shutil.rmtree(folder, ignore_errors=True)
                try:
                    made.rename(folder)
                except OSError:  # on a file system without locks, another process may have created the same index
                    if not (folder / "meta.json").is_file():
                        raise
            finally:
                shutil.rmtree(made, ignore_errors=True)
            return _read(folder)
    except OSError as error:
        raise TellapartError(f"cannot write METEOR's index to {home} ({error.strerror or error}); {_REMEDY}") from None


def _sources() -> tuple[Path, Path]:
    found = importlib.util.find_spec("pycocoevalcap")
    for place in (found.submodule_search_locations or ()) if found else ():
        jar, paraphrases = Path(place, "meteor", _JAR), Path(place, "meteor", _PARAPHRASES)
        if jar.is_file() and paraphrases.is_file():
            return jar, paraphrases
    raise MissingExtra("meteor", "METEOR (its tables come with the pycocoevalcap package)")


def _key(files: Iterable[Path]) -> str:
    """Returns a key computed from the files' sizes and last bytes. This suffices because jar and gzip files end with
    checksums of their content.
    """
    digest = hashlib.blake2b(f"index {VERSION}".encode(), digest_size=10)
    for file in files:
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - (1 << 16)))
            digest.update(f" {size} ".encode() + stream.read())
    return digest.hexdigest()


_LISTS = ("paraphrases", "synsets", "words")
_PARTS = ("key", "start", "value")


def _read(folder: Path) -> Tables:
    def array(name: str) -> np.ndarray:
        # Viewed as plain arrays, because slicing np.memmap takes three times as long.
        return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False).view(np.ndarray))

    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    content: dict[str, Any] = {name: frozenset(words) for name, words in meta.items()}
    content |= {table: Lists(*[array(f"{table}.{part}") for part in _PARTS]) for table in _LISTS}
    return Tables(**content, stem_W=array("stems"))


def _write(folder: Path, jar: Path, paraphrases: Path) -> None:
    stem = english_stemmer()
    with zipfile.ZipFile(jar) as archive:

        def text(name: str) -> str:
            return archive.read(name).decode()

        synsets = {word: [*map(int, row.split())] for word, row in _couples(text("synonym/english.synsets"))}
        irregular: dict[str, list[int]] = {}
        for base, forms in _couples(text("synonym/english.exceptions")):
            for form in forms.split():
                irregular.setdefault(form, []).extend(synsets.get(base, ()))
        prefixes = [line for line in text("nonbreaking/english.prefixes").split("\n") if line and line[0] != "#"]
        meta = {
            "function_words": text("function/english.words").split(),
            "abbreviations": [line.strip() for line in prefixes if _NUMERIC not in line],
            "before_numbers": [line.partition(_NUMERIC)[0].strip() for line in prefixes if _NUMERIC in line],
        }
    phrases, words = _paraphrases(paraphrases)
    vocabulary = {word: _senses(word, synsets, irregular) for word in {*words, *synsets, *irregular}}
    for table, rows in zip(_LISTS, (phrases, _lists(synsets), _lists(vocabulary)), strict=True):
        for part in _PARTS:
            np.save(folder / f"{table}.{part}.npy", getattr(rows, part), allow_pickle=False)
    stems = {word_hash(word): word_hash(stem(word)) for word in vocabulary}
    np.save(folder / "stems.npy", np.array([stems[key] for key in sorted(stems)], np.uint64), allow_pickle=False)
    (folder / "meta.json").write_text(json.dumps(meta, ensure_ascii=False), encoding="utf-8")


def bases(word: str) -> list[str]:
    """Returns an inflected word's possible base forms according to WordNet's rules. Callers use the first base
    form that has synonyms.
    """
    if len(word) <= 2:
        return []
    return [
        word[: len(word) - len(ending)] + instead
        for ending, instead in _ENDINGS
        if word.endswith(ending) and not (ending == "s" and word.endswith("ss"))
    ]


def _senses(word: str, synsets: dict[str, list[int]], irregular: dict[str, list[int]]) -> list[int]:
    """Returns the synsets of a word and its base form."""
    found = irregular.get(word)
    if found is None:
        found = next((synsets[base] for base in bases(word) if base in synsets), [])
    return sorted({*synsets.get(word, ()), *found})


@functools.cache
def english_stemmer() -> Callable[[str], str]:
    """Returns the version of Snowball's English stemmer that METEOR uses. Version 3 of the library gives different
    stems.
    """
    try:
        import snowballstemmer
    except ImportError:
        raise MissingExtra("meteor", "METEOR") from None
    stem: Callable[[str], str] = snowballstemmer.stemmer("english").stemWord
    if stem("evening") != "even":
        raise TellapartError(
            "METEOR requires an older snowballstemmer than the installed one; run: pip install "
            "'snowballstemmer>=2.2,<3'"
        )
    return stem


def _couples(text: str) -> Iterator[tuple[str, str]]:
    lines = text.removesuffix("\n").split("\n")
    return zip(lines[::2], lines[1::2], strict=True)


def _lists(rows: dict[str, list[int]]) -> Lists:
    ordered = sorted((word_hash(word), row) for word, row in rows.items())
    start = np.cumsum([0, *(len(row) for _, row in ordered)])
    value = np.array([number for _, row in ordered for number in row], np.int32)
    return Lists(np.array([key for key, _ in ordered], np.uint64), start.astype(np.int32), value)


def _paraphrases(file: Path) -> tuple[Lists, list[str]]:
    """Reads the paraphrase table (three lines per entry: probability, phrase, paraphrase). Returns the table and its
    words.
    """
    words = _Words()
    found: list[tuple[np.ndarray, np.ndarray]] = []

    with file.open("rb") as raw, gzip.open(raw) as stream:
        size = file.stat().st_size
        with Progress(size >> 20, "building METEOR's index, once (MB of paraphrases)") as progress:
            while lines := list(itertools.islice(stream, 3 * _PAIRS_AT_ONCE)):
                found.append((_hashes(lines[1::3], words), _hashes(lines[2::3], words)))
                progress.advance((raw.tell() >> 20) - progress.done)
    phrase_E, paraphrase_E = (np.concatenate(side) for side in zip(*found, strict=True))
    key = np.unique(np.concatenate([phrase_E, paraphrase_E]))
    row_E = np.searchsorted(key, phrase_E)
    value = np.searchsorted(key, paraphrase_E)[np.argsort(row_E, kind="stable")].astype(np.int32)
    start = np.concatenate([[0], np.cumsum(np.bincount(row_E, minlength=len(key)))]).astype(np.int32)
    return Lists(key, start, value), [word.decode() for word in words]


class _Words(dict[bytes, int]):
    def __missing__(self, word: bytes) -> int:
        self[word] = word_hash(word.decode())
        return self[word]


def _hashes(phrases: Sequence[bytes], words: _Words) -> np.ndarray:
    """Computes the hashes of phrases from their words' hashes."""
    split = [phrase.split() for phrase in phrases]
    count_P = np.array([len(tokens) for tokens in split])
    first_P = np.cumsum(count_P) - count_P
    word_W = np.array([words[token] for tokens in split for token in tokens], np.uint64)
    place_W = np.arange(len(word_W)) - np.repeat(first_P, count_P)
    return np.add.reduceat(word_W * PLACES[place_W], first_P)
