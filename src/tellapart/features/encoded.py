"""Saves feature rows to a file, so that they can be added to the store on another machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tellapart.data.pictures import StoredPicture
from tellapart.errors import PictureError, UsageError
from tellapart.features.filling import BATCH_SIZE, Filling
from tellapart.features.row_makers import encoder_rows
from tellapart.features.rows import RowStore
from tellapart.types import Encoder, Item


@dataclass(frozen=True)
class EncodedRows:
    """The encoded rows of N items, N×…, with the ``label`` and ``precision`` of their table.

    ``files``: (path, size, modification time in ns, content key) for each picture that is a file.
    """

    label: str
    precision: str
    ids: list[str]
    keys: list[str]
    rows_ND: np.ndarray
    files: list[tuple[str, int, int, str]]

    def save(self, path: Path) -> None:
        """Saves the rows to an ``.npz`` file whose bytes depend only on its content."""
        texts = {"ids": self.ids, "keys": self.keys, "addresses": [file[0] for file in self.files]}
        texts |= {"contents": [file[3] for file in self.files], "label": [self.label], "precision": [self.precision]}
        arrays = {name: np.frombuffer("\n".join(lines).encode("utf-8"), np.uint8) for name, lines in texts.items()}
        numbers = np.array([file[1:3] for file in self.files], np.int64).reshape(-1, 2)
        with path.open("wb") as file:
            np.savez(file, rows=self.rows_ND, signatures=numbers, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> EncodedRows:
        """Loads a file that `save` wrote. Raises `UsageError` for any other file."""
        try:
            with np.load(path) as arrays:  # never unpickle: object arrays raise an error

                def lines(name: str) -> list[str]:
                    text = arrays[name].tobytes().decode("utf-8")
                    return text.split("\n") if text else []

                sizes = arrays["signatures"].tolist()
                files = [
                    (address, size, time, content)
                    for address, (size, time), content in zip(lines("addresses"), sizes, lines("contents"), strict=True)
                ]
                return cls(lines("label")[0], lines("precision")[0], lines("ids"), lines("keys"), arrays["rows"], files)
        except Exception as error:  # NumPy and zipfile raise almost any error for damaged bytes
            raise UsageError(f"cannot read rows of the feature store from {path} ({error})") from None


def encode_rows(store: RowStore, items: Sequence[Item], encoder: Encoder) -> tuple[EncodedRows, list[PictureError]]:
    """Encodes the rows that are missing from the store.

    Returns the rows of all readable pictures, and the errors for the unreadable ones.
    """
    maker = encoder_rows(encoder)
    filling = Filling(store, maker, items, BATCH_SIZE)
    for _ in filling.run():
        pass
    kept = [(item, key) for item, key in zip(items, filling.keys, strict=True) if key is not None]
    keys = [key for _, key in kept]
    stored = store.read(maker.label, keys) if keys else np.zeros((0, 1), np.float32)
    if stored is None:
        raise UsageError(f"{store.folder}: the cache deletes features before they are used; raise TELLAPART_CACHE_GB")
    ids = [" ".join(item.id.split("\n")) for item, _ in kept]
    rows = EncodedRows(maker.label, maker.precision, ids, keys, np.asarray(stored), _files(store, kept))
    return rows, [error for _, error in filling.errors]


def take_rows(store: RowStore, encoded: EncodedRows) -> None:
    """Adds the encoded rows that the store lacks."""
    known = store.known_rows(encoded.label, encoded.keys)
    new = [place for place, key in enumerate(encoded.keys) if key not in known]
    first = {encoded.keys[place]: place for place in reversed(new)}  # identical pictures share one row
    if first:
        places = sorted(first.values())
        keys = [encoded.keys[place] for place in places]
        store.append(encoded.label, keys, encoded.rows_ND[places], encoded.precision)
    store.remember_files([(address, (size, time), content) for address, size, time, content in encoded.files])


def _files(store: RowStore, kept: Sequence[tuple[Item, str]]) -> list[tuple[str, int, int, str]]:
    """Returns the store's records of these pictures' files, except files whose names are not valid text."""
    signatures: dict[str, tuple[int, int]] = {}
    for item, _ in kept:
        if isinstance(item.picture, StoredPicture):
            try:
                address = os.fsencode(item.picture.address()).decode("utf-8", "backslashreplace")
                if "\n" not in address:
                    signatures[address] = item.picture.signature()
            except PictureError:
                continue
    return [(address, *signatures[address], key) for address, key in store.known_files(signatures).items()]
