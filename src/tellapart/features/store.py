"""The feature store: features of frozen encoders and decoded pixels on disk, so that every picture is encoded once.

    store = FeatureStore()
    items = store.readable(dataset, encoder, skipped=dataset.unreadable)   # encodes what is not there yet
    features_ND = store.features(items, encoder)                           # rows in the order of the items

The key of a row is the encoder's fingerprint (weights and preprocessing) and a hash of the picture's content: a renamed
or copied file is not encoded again, a changed one is. A file with the same path, size and modification time is not read
again. Of a clip, `Encoder.frames` frames are encoded and joined to one row, whose key includes their number.
`docs/cache.md` describes the cache; `tellapart.features.row_store` is the format on disk, `tellapart.features.filling`
the pass that encodes what is missing.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.data.images.pictures import FilePicture
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.features.filling import SETTLED_NS, Filling, RowMaker
from tellapart.features.row_store import RowStore, TableUse
from tellapart.features.shards import StoredRows
from tellapart.progress import Progress
from tellapart.types import Encoder, Item
from tellapart.utils.messages import say

if TYPE_CHECKING:
    from tellapart.data import Skipped

__all__ = ["FeatureStore", "RowMaker", "StoredRows", "encoder_rows"]

BATCH = 64
SMALL = 8 << 20  # bytes of a file that is hashed again sooner than asked for in the index


class FeatureStore:
    """Features and pixels of pictures on disk, below ``folder``.

    ``folder``: default ``$TELLAPART_CACHE``, else ``~/.cache/tellapart``. ``limit_gb``: default
    ``$TELLAPART_CACHE_GB``, else 20; beyond it the least recently used files of rows are dropped, none that is open.
    Safe with several processes at once, which share the work, and under ``kill -9``.
    """

    def __init__(self, folder: str | Path | None = None, *, limit_gb: float | None = None) -> None:
        self.folder = Path(folder or os.environ.get("TELLAPART_CACHE") or "~/.cache/tellapart").expanduser()
        self._rows = RowStore(self.folder, (_limit_gb() if limit_gb is None else limit_gb) * 1e9)

    @property
    def table(self) -> RowStore:
        """The rows themselves, by key."""
        return self._rows

    def features(
        self, items: Sequence[Item], encoder: Encoder, *, batch_size: int = BATCH, progress: bool = True
    ) -> StoredRows:
        """float32 features N×D (N×P×D where the encoder gives that), rows in the order of ``items``.

        They are read when they are asked for, by slices and arrays of numbers; ``numpy.asarray`` reads all. Encodes
        what is not in the store. Raises
        `PictureError` that names the pictures which cannot be read: leave them out with `readable` first.
        """
        return self._array(items, encoder_rows(encoder), batch_size, progress)

    def rows(self, items: Sequence[Item], maker: RowMaker, *, progress: bool = True) -> StoredRows:
        """What ``maker`` makes of pictures, such as the pixels of `tellapart.training.pixels`; else as `features`."""
        return self._array(items, maker, BATCH, progress)

    def readable(
        self,
        items: Sequence[Item],
        encoder: Encoder | RowMaker,
        *,
        skipped: Skipped | None = None,
        batch_size: int = BATCH,
        progress: bool = True,
    ) -> list[Item]:
        """Encode what is missing. The items whose rows are in the store; ``skipped`` gets the others.

        encoder: or the `RowMaker` of other rows.
        """
        maker = encoder if isinstance(encoder, RowMaker) else encoder_rows(encoder)
        keys, errors = self._fill(items, maker, batch_size, progress)
        if skipped is not None:
            for item, error in errors:
                skipped.add_error(item.picture.name, error)
        self._rows.touch(maker.label)
        return [item for item, key in zip(items, keys, strict=True) if key is not None]

    def cached(self, label: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        """The array that ``make`` returns, stored under ``label``; ``make`` is called only where nothing is stored.

        ``label`` must identify everything that the array depends on.
        """
        known = self._rows.read(label, ["all"])
        if known is None:
            made = make()
            self._rows.append(label, ["all"], made[None])
        self._rows.touch(label)
        return made if known is None else known[0]

    def digest(self, path: Path) -> str:
        """The content key of a file of any size, read again only where its size or time of change is another.

        Raises `TellapartError` where it cannot be read.
        """
        picture = FilePicture(path)
        if (signature := picture.signature())[0] < SMALL:
            return picture.read().key()
        address = os.fsencode(picture.address()).decode("utf-8", "backslashreplace")
        if (known := self._rows.known_files({address: signature}).get(address)) is not None:
            return known
        with path.open("rb") as file:
            key = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        if time.time_ns() - signature[1] > SETTLED_NS:
            self._rows.remember_files([(address, signature, key)])
        return key

    def usage(self) -> list[TableUse]:
        """The contents of the cache, last used first."""
        return self._rows.usage()

    def empty(self) -> int:
        """Drop everything. The number of bytes freed."""
        return self._rows.empty()

    def _array(self, items: Sequence[Item], maker: RowMaker, batch_size: int, progress: bool) -> StoredRows:
        if not len(items):
            raise TellapartError("no pictures to encode; expected at least one item")
        for _ in range(3):  # another process may drop rows (size limit, --empty) before they are mapped
            keys, errors = self._fill(items, maker, batch_size, progress)
            if errors:
                raise PictureError(_unreadable(errors, len(items)))
            self._rows.touch(maker.label)
            array = self._rows.read(maker.label, [key for key in keys if key is not None])
            if array is not None:
                return array
        raise TellapartError(f"{self.folder}: the cache is emptied as fast as it fills; raise TELLAPART_CACHE_GB")

    def _fill(
        self, items: Sequence[Item], maker: RowMaker, batch_size: int, progress: bool
    ) -> tuple[list[str | None], list[tuple[Item, PictureError]]]:
        """Bring the rows of ``items`` into the store. The rows' keys (None: unreadable), and who could not be read."""
        work = Filling(self._rows, maker, items, batch_size)
        with Progress(len(items), f"encoding ({maker.label[:24]})", enabled=progress) as shown:
            for count in work.run():
                shown.advance(count)
        if damaged := self._rows.damaged.pop(maker.label, 0):
            say(f"{self.folder}: {damaged:,} cached rows were damaged; they are encoded anew")
        return work.keys, work.errors


def encoder_rows(encoder: Encoder) -> RowMaker:
    """An encoder as the store uses it: float32 rows, without gradient. Half precision is kept as such on disk."""

    def rows(pixels_FCHW: Sequence[Any]) -> np.ndarray:
        import torch

        with torch.no_grad():
            features = encoder.encode(torch.cat(list(pixels_FCHW)))
            if encoder.join is not None:
                each = torch.split(features, [len(frames) for frames in pixels_FCHW])
                features = torch.stack([encoder.join(frames) for frames in each])
        return features.detach().float().cpu().numpy()

    label = f"features {encoder.fingerprint}" + (f" {encoder.precision}" if encoder.precision != "fp32" else "")
    return RowMaker(label, encoder.pixels, rows, encoder.frames, encoder.precision, encoder.name)


def _unreadable(errors: Sequence[tuple[Item, PictureError]], total: int) -> str:
    some = ", ".join(str(error) for _, error in errors[:3]) + (", …" if len(errors) > 3 else "")
    return f"{len(errors):,} of {total:,} pictures could not be read: {some}"


def _limit_gb() -> float:
    written = os.environ.get("TELLAPART_CACHE_GB") or "20"
    try:
        value = float(written)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"TELLAPART_CACHE_GB={written} is not a number of gigabytes such as 20")
    return value
