"""Defines `READERS`, the registry of data set kinds, and `Reader`, which describes one of them.

A reader is a module of `tellapart.data.readers`, an entry point in the ``tellapart.readers`` group of an installed
package (a `Reader`, or its function), or an entry that a program registers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tellapart.data.dataset import ReadItems
from tellapart.data.options import Options
from tellapart.errors import UsageError
from tellapart.utils.registry import Entry, Registry

ReadFunction = Callable[[Path, Options], ReadItems]


@dataclass(frozen=True, kw_only=True)
class Reader(Entry[ReadFunction]):
    """One layout of a data set.

    factory: function that reads a path with the given options, and returns the items and the skipped items.
    needs: the extras that must be installed.

    keys: accepted keys in addition to `COMMON_KEYS`, each with one line of help.
    needs_path: whether the reader reads from disk.
    layouts: pairs (what a user has, what to type) for the docs.
    suffixes: file suffixes for which ``kind:`` may be omitted.
    json_layout: function that returns whether the content of a ``.json`` file is of this kind.
    folder_markers: names of files that mark a folder as this kind.
    folder_suffixes: suffixes of files that mark a folder as this kind if it contains no pictures.
    published: whether the layout belongs to one published data set, which model cards then mention.
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    needs_path: bool = True
    layouts: tuple[tuple[str, str], ...] = ()
    suffixes: tuple[str, ...] = ()
    json_layout: Callable[[Any], bool] | None = None
    folder_markers: tuple[str, ...] = ()
    folder_suffixes: tuple[str, ...] = ()
    published: bool = False

    @property
    def read(self) -> ReadFunction:
        """Returns the function that reads the data."""
        return self.factory


READERS: Registry[Reader] = Registry(
    "kind of data", Reader, group="tellapart.readers", packages=("tellapart.data.readers",)
)

# Keys that every kind accepts, in the order in which they are applied.
COMMON_KEYS: Mapping[str, str] = {
    "split": "`test`; `dev`, `valid` and `validation` mean `val`; several: `train,val`",
    "ids": "`list.json`: only the pictures in this list; accepts ids, file names or COCO's numbers",
    "part": "`1/3`: one of three disjoint parts, the same on every machine; `1,2/3`: two of them",
    "limit": "`100`: the first 100 items",
    "describe": ("`in this picture`: replaces each picture's references with one text: this prompt and the references"),
}
IMAGES = {"images": "folder of the pictures; default: where the layout usually stores them"}


def builtin_readers() -> Iterator[Reader]:
    """Yields the built-in readers and those that the program registered."""
    return (reader for _, reader in sorted(READERS.builtin().items()))


def all_readers() -> Iterator[Reader]:
    """Yields the built-in readers, then those of installed packages. Skips packages that cannot be loaded, unless the
    user named them.
    """
    yield from builtin_readers()
    for name in sorted(READERS.installed().keys() - READERS.builtin().keys()):
        with contextlib.suppress(UsageError):
            yield READERS.find(name)
