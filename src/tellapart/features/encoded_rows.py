"""Saves feature rows to a file, so that they can be added to the store on another machine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.data.pictures import StoredPicture
from tellapart.errors import PictureError, UsageError
from tellapart.features.file_signatures import file_identity
from tellapart.features.filling import fill
from tellapart.features.row_makers import encoder_rows
from tellapart.features.rows import RowStore
from tellapart.types import Encoder, Item

SUFFIX = ".npz"
FORMAT = 2  # version of the files that `EncodedRows.save` writes


@dataclass(frozen=True)
class EncodedRows:
    """The encoded rows of N items, N×…, with the ``label`` and ``precision`` of their table.

    ``files``: (path, (size, modification time in ns), content key) for each picture that is a file.
    """

    label: str
    precision: str
    ids: list[str]
    keys: list[str]
    rows_ND: np.ndarray
    files: list[Any]

    def save(self, path: Path) -> None:
        """Saves the rows to an ``.npz`` file whose bytes depend only on its content."""
        texts = {name: value for name, value in vars(self).items() if name != "rows_ND"}
        with path.open("wb") as file:
            np.savez(file, rows_ND=self.rows_ND, texts=np.frombuffer(json.dumps(texts).encode(), np.uint8))

    @classmethod
    def load(cls, path: Path) -> EncodedRows:
        """Loads a file that `save` wrote. Raises `UsageError` for any other file."""
        try:
            with np.load(path) as arrays:  # never unpickle: object arrays raise an error
                return cls(rows_ND=arrays["rows_ND"], **json.loads(arrays["texts"].tobytes()))
        except Exception as error:  # NumPy and zipfile raise almost any error for damaged bytes
            raise UsageError(
                f"{path}: expected feature rows that this version of tellapart wrote ({error}); encode them again"
            ) from None


def encode_rows(
    store: RowStore, items: Sequence[Item], encoder: Encoder
) -> tuple[EncodedRows, list[tuple[Item, PictureError]]]:
    """Encodes the rows that are missing from the store.

    Returns the rows of all readable pictures, and the unreadable items with their errors.
    """
    maker = encoder_rows(encoder)
    keys_N, errors = fill(store, maker, items)
    kept = [(item, key) for item, key in zip(items, keys_N, strict=True) if key is not None]
    keys = [key for _, key in kept]
    stored = store.read(maker.label, keys) if keys else np.zeros((0, 1), np.float32)
    if stored is None:
        raise UsageError(f"{store.folder}: the cache deletes features before they are used; raise TELLAPART_CACHE_GB")
    signatures = {}
    for item, _ in kept:
        if isinstance(item.picture, StoredPicture):
            with contextlib.suppress(PictureError):
                address, signature = file_identity(item.picture)
                signatures[address] = signature
    files = [(address, signatures[address], key) for address, key in store.known_files(signatures).items()]
    ids = [" ".join(item.id.split("\n")) for item, _ in kept]
    return EncodedRows(maker.label, maker.precision, ids, keys, np.asarray(stored), files), errors


def take_rows(store: RowStore, encoded: EncodedRows) -> None:
    """Adds the encoded rows that the store lacks."""
    if encoded.keys:
        store.append(encoded.label, encoded.keys, encoded.rows_ND, encoded.precision)
    store.remember_files(encoded.files)
