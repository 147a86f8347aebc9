"""The feature store keeps features of frozen encoders and decoded pixels on disk, so that a picture is encoded once.

    store = FeatureStore()
    items = store.readable(dataset, encoder, skipped=dataset.unreadable)   # encodes missing rows
    features_ND = store.features(items, encoder)                           # rows in the order of the items

The key of a row consists of the encoder's fingerprint (weights and preprocessing) and a hash of the picture's content,
so renamed or copied files are not encoded again, but changed files are. Files whose path, size and modification time
have not changed are not read again. For a clip, `Encoder.frames` frames are encoded and joined into one row, whose key
includes the number of frames. A row does not depend on the other rows in its batch (`models.independent_rows`).
`docs/cache.md` describes the cache.

`features.filling` encodes missing rows.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tellapart.data import Skipped
from tellapart.data.pictures import FilePicture, is_clip
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.features.file_signatures import file_identity, settled
from tellapart.features.filling import BATCH_SIZE, fill
from tellapart.features.row_makers import RowMaker, encoder_rows, head_rows
from tellapart.features.rows import RowStore, TableUse
from tellapart.features.stored_rows import StoredRows
from tellapart.types import Encoder, Item
from tellapart.utils.blocks import blocks_of
from tellapart.utils.cache_folder import cache_folder
from tellapart.utils.listed_names import few
from tellapart.utils.messages import say

TOWER_ROWS = 256  # number of a frozen encoder's rows in memory at once
SMALL_FILE_BYTES = 8 << 20  # smaller files are hashed again, which is faster than looking them up in the index


class FeatureStore:
    """Stores the features and pixels of pictures on disk, in ``folder``.

    ``folder``: defaults to ``$TELLAPART_CACHE``, or ``~/.cache/tellapart`` if that is not set. ``limit_gb``: defaults
    to ``$TELLAPART_CACHE_GB``, or 20 if that is not set. When the store exceeds this limit, the rows of the least
    recently used encoders are dropped. Safe with concurrent processes, and if a process is killed with ``kill -9``.
    """

    def __init__(self, folder: str | Path | None = None, *, limit_gb: float | None = None) -> None:
        self.folder = Path(folder or cache_folder()).expanduser()
        self.table = RowStore(self.folder, (_limit_gb() if limit_gb is None else limit_gb) * 1e9)

    def features(
        self, items: Sequence[Item], encoder: Encoder, *, batch_size: int = BATCH_SIZE, progress: bool = True
    ) -> StoredRows:
        """Returns float32 features N×D (or N×P×D, depending on the encoder), in the order of ``items``.

        Encodes missing rows. Rows are read lazily, by slices and index arrays; ``numpy.asarray`` reads all of them.
        Raises a `PictureError` that lists the pictures that cannot be read. To avoid it, call `readable` first.
        """
        self._fill_by_tower(items, encoder, batch_size, progress)
        return self._array(items, encoder_rows(encoder), batch_size, progress)

    def rows(self, items: Sequence[Item], maker: RowMaker, *, progress: bool = True) -> StoredRows:
        """Returns rows computed by ``maker`` (see `training.pixels.TrainingPixels`). Otherwise like `features`."""
        return self._array(items, maker, BATCH_SIZE, progress)

    def readable(
        self,
        items: Sequence[Item],
        encoder: Encoder | RowMaker,
        *,
        skipped: Skipped | None = None,
        progress: bool = True,
    ) -> list[Item]:
        """Encodes missing rows. Returns the items that could be read, and adds all other items to ``skipped``.

        encoder: an encoder, or a `RowMaker` for other rows.
        """
        if isinstance(encoder, RowMaker):
            maker = encoder
        else:
            self._fill_by_tower(items, encoder, BATCH_SIZE, progress)
            maker = encoder_rows(encoder)
        keys, errors = self._fill(items, maker, BATCH_SIZE, progress)
        if skipped is not None:
            for item, error in errors:
                skipped.add_error(item.picture.name, error)
        self.table.touch(maker.label)
        return [item for item, key in zip(items, keys, strict=True) if key is not None]

    def cached(self, label: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        """Returns the array stored under ``label``. If there is no such array, calls ``make`` and stores its result.

        ``label`` must identify everything that the array depends on.
        """
        if (known := self.table.read(label, ["all"])) is not None:
            array = known[0]
        else:
            array = make()
            self.table.append(label, ["all"], array[None])
        self.table.touch(label)
        return array

    def digest(self, path: Path) -> str:
        """Returns the content key of a file. Reads the file again only if its size or modification time has changed.

        Raises `TellapartError` if the file cannot be read.
        """
        picture = FilePicture(path)
        address, signature = file_identity(picture)
        if signature[0] < SMALL_FILE_BYTES:
            return picture.read().key()
        if known := self.table.known_files({address: signature}):
            return known[address]
        with path.open("rb") as file:
            key = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        if settled(signature):
            self.table.remember_files([(address, signature, key)])
        return key

    def usage(self) -> list[TableUse]:
        """Returns the contents of the cache, most recently used first."""
        return self.table.usage()

    def empty(self) -> int:
        """Empties the store. Returns the number of bytes freed."""
        return self.table.empty()

    def _array(self, items: Sequence[Item], maker: RowMaker, batch_size: int, progress: bool) -> StoredRows:
        if not len(items):
            raise TellapartError("No pictures to encode; expected at least one item")
        for _ in range(3):  # retry, because another process may drop rows (size limit, --empty) before they are mapped
            keys, errors = self._fill(items, maker, batch_size, progress)
            if errors:
                unreadable = few(error for _, error in errors)
                raise PictureError(f"{len(errors):,} of {len(items):,} pictures could not be read: {unreadable}")
            self.table.touch(maker.label)
            array = self.table.read(maker.label, [key for key in keys if key is not None])
            if array is not None:
                return array
        raise TellapartError(
            f"{self.folder}: the cache deletes features before they are used; raise TELLAPART_CACHE_GB"
        )

    def _fill_by_tower(self, items: Sequence[Item], encoder: Encoder, batch_size: int, progress: bool) -> None:
        """If the encoder has a ``tower``, computes the rows of still pictures from the tower's rows and stores them."""
        if encoder.tower is None:
            return
        tower, maker = encoder_rows(encoder.tower), encoder_rows(encoder)
        still = [item for item in items if not is_clip(item.picture)]
        keys = list(dict.fromkeys(key for key in self._fill(still, tower, batch_size, progress)[0] if key is not None))
        known = self.table.known_rows(maker.label, keys)
        for some in blocks_of([key for key in keys if key not in known], TOWER_ROWS):
            if (rows := self.table.read(tower.label, some)) is None:
                return  # the tower's rows were dropped in the meantime; encode these pictures like all others
            self.table.append(maker.label, some, head_rows(encoder, np.asarray(rows)), maker.precision, maker.name)
        self.table.touch(tower.label)

    def _fill(
        self, items: Sequence[Item], maker: RowMaker, batch_size: int, progress: bool
    ) -> tuple[list[str | None], list[tuple[Item, PictureError]]]:
        """Adds the rows of ``items`` to the store, as `filling.fill`, and says how many were damaged."""
        keys_and_errors = fill(self.table, maker, items, batch_size, progress)
        if damaged := self.table.damaged.pop(maker.label, 0):
            say(f"{self.folder}: {damaged:,} cached rows are damaged; encoding them again")
        return keys_and_errors


def _limit_gb() -> float:
    written = os.environ.get("TELLAPART_CACHE_GB") or "20"
    try:
        value = float(written)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"TELLAPART_CACHE_GB must be a number of gigabytes such as 20; got '{written}'")
    return value
