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

import numpy as np

from tellapart.errors import MissingExtra, TellapartError
from tellapart.utils.locks import locked
from tellapart.utils.progress import Progress

VERSION = 1
LONGEST = 7  # number of words in the table's longest phrase
_JAR, _PARAPHRASES = "meteor-1.5.jar", "data/paraphrase-en.gz"
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
        if not len(self.key):
            return np.full(len(hashes), -1)
        place = np.searchsorted(self.key, hashes)
        place[place == len(self.key)] = 0
        return np.where(self.key[place] == hashes, place, -1)

    def row(self, number: int) -> list[int]:
        row: list[int] = self.value[self.start[number] : self.start[number + 1]].tolist()
        return row


@dataclass(frozen=True)
class Tables:
    """METEOR's linguistic data for English.

    paraphrases: maps each phrase to its paraphrases' rows, in table order.
    synsets: maps each base form to its synsets.
    irregular: maps each irregular form to its base forms' synsets.
    words: maps each word in these tables to the synsets of all its forms.
    stem_W: the hash of each word's stem.
    """

    function_words: frozenset[str]
    abbreviations: frozenset[str]
    before_numbers: frozenset[str]
    paraphrases: Lists
    synsets: Lists
    irregular: Lists
    words: Lists
    stem_W: np.ndarray


def word_hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def phrase_hashes(word_W: np.ndarray, start_P: np.ndarray) -> np.ndarray:
    """Computes the hashes of phrases from their words' hashes. ``start_P``: the index of each phrase's first word."""
    place_W = np.arange(len(word_W)) - np.repeat(start_P, np.diff(np.append(start_P, len(word_W))))
    return np.add.reduceat(word_W * PLACES[place_W], start_P) if len(start_P) else np.zeros(0, np.uint64)


def index_folder() -> Path:
    """Returns the index folder for the installed tables. The folder may not exist yet. Raises `MissingExtra`."""
    home = Path(os.environ.get("TELLAPART_CACHE") or "~/.cache/tellapart").expanduser()
    return home / "meteor" / _key(_sources())


_NOT_THERE = (OSError, ValueError, KeyError)  # the index is absent or damaged


def open_tables() -> Tables:
    """Opens the index, after building it if necessary. Raises `MissingExtra` if pycocoevalcap is not installed."""
    jar, paraphrases = _sources()
    folder = index_folder()
    home = folder.parent
    with contextlib.suppress(*_NOT_THERE):
        return _read(folder)

    try:
        with locked(home, wait=True):  # another process may be building the index, which takes ten seconds
            with contextlib.suppress(*_NOT_THERE):
                return _read(folder)
            made = Path(tempfile.mkdtemp(prefix=".making-", dir=home))
            try:
                _write(made, jar, paraphrases)
                shutil.rmtree(folder, ignore_errors=True)
                with _other_may_win(folder):
                    made.rename(folder)
            finally:
                shutil.rmtree(made, ignore_errors=True)
            return _read(folder)
    except OSError as error:
        raise TellapartError(
            f"cannot write METEOR's index to {home} ({error.strerror or error}); set TELLAPART_CACHE to a "
            "writable folder with 100 MB of free space"
        ) from None


class _other_may_win:
    """Ignores the error if another process has meanwhile created the same index (on a file system without locks)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, OSError) and (self.folder / "meta.json").is_file()


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


_LISTS = ("paraphrases", "synsets", "irregular", "words")
_ARRAYS = [*(f"{table}.{part}" for table in _LISTS for part in ("key", "start", "value")), "stems"]


def _read(folder: Path) -> Tables:
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    # Viewed as plain arrays, because slicing np.memmap takes three times as long.
    arrays = {
        name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False).view(np.ndarray) for name in _ARRAYS
    }
    sets = [frozenset(meta[name]) for name in ("function_words", "abbreviations", "before_numbers")]
    lists = [Lists(*[arrays[f"{table}.{part}"] for part in ("key", "start", "value")]) for table in _LISTS]
    return Tables(sets[0], sets[1], sets[2], lists[0], lists[1], lists[2], lists[3], arrays["stems"])


def _write(folder: Path, jar: Path, paraphrases: Path) -> None:
    stem = english_stemmer()

    with zipfile.ZipFile(jar) as archive:
        text = {
            name: archive.read(f"{place}/english.{name}").decode()
            for place, name in (
                ("function", "words"),
                ("nonbreaking", "prefixes"),
                ("synonym", "synsets"),
                ("synonym", "exceptions"),
            )
        }
    synsets = {word: [int(number) for number in row.split()] for word, row in _couples(text["synsets"])}
    irregular: dict[str, list[int]] = {}
    for base, forms in _couples(text["exceptions"]):
        for form in forms.split():
            irregular.setdefault(form, []).extend(synsets.get(base, ()))
    phrases, words = _paraphrases(paraphrases)
    vocabulary = {word: _senses(word, synsets, irregular) for word in {*words, *synsets, *irregular}}
    lists = dict(zip(_LISTS, (phrases, *map(_lists, (synsets, irregular, vocabulary))), strict=True))
    stems = {word_hash(word): word_hash(stem(word)) for word in vocabulary}
    arrays = {
        f"{name}.{part}": getattr(rows, part) for name, rows in lists.items() for part in ("key", "start", "value")
    }
    arrays["stems"] = np.array([stems[key] for key in lists["words"].key.tolist()], np.uint64)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    marked = [line.split("#NUMERIC_ONLY#") for line in text["prefixes"].split("\n") if line and line[0] != "#"]
    meta = {
        "function_words": sorted(text["words"].split()),
        "abbreviations": sorted(parts[0].strip() for parts in marked if len(parts) == 1),
        "before_numbers": sorted(parts[0].strip() for parts in marked if len(parts) == 2),
    }
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
    key = np.fromiter((word_hash(word) for word in rows), np.uint64, len(rows))
    order = np.argsort(key)
    values = list(rows.values())
    ordered = [values[number] for number in order.tolist()]
    start = np.cumsum([0, *map(len, ordered)])
    return Lists(key[order], start.astype(np.int32), np.array(list(itertools.chain(*ordered)), np.int32))


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
    tokens = b"".join(phrases).split()
    count_P = np.fromiter((phrase.count(b" ") + 1 for phrase in phrases), np.int64, len(phrases))
    word_W = np.fromiter(map(words.__getitem__, tokens), np.uint64, len(tokens))
    return phrase_hashes(word_W, np.cumsum(count_P) - count_P)
