"""The feature store: features of frozen encoders and decoded pixels on disk, so that every picture is encoded once.

    store = FeatureStore()
    items = store.readable(dataset, encoder, skipped=dataset.unreadable)   # encodes what is not there yet
    features_ND = store.features(items, encoder)                           # rows in the order of the items

The key of a row is the encoder's fingerprint (weights and preprocessing) and a hash of the picture's content: a renamed
or copied file is not encoded again, a changed one is. A file with the same path, size and modification time is not read
again. Of a clip, `Encoder.frames` frames are encoded and joined to one row, whose key includes their number.
`docs/cache.md` describes the cache; `tellapart.features.row_store` is the format on disk.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.features.row_store import RowStore, TableUse
from tellapart.images.clips import is_clip, sample_frames
from tellapart.images.pictures import FilePicture, StoredPicture
from tellapart.progress import Progress
from tellapart.types import Encoder, Item, Picture
from tellapart.utils.messages import say

if TYPE_CHECKING:
    from PIL import Image

    from tellapart.data import Skipped

BATCH = 64
WINDOW = 512  # items whose keys are looked up at once
# A file changed less than this ago may change again within the clock's grain, and look unchanged.
SETTLED_NS = 2_000_000_000
SMALL = 8 << 20  # bytes of a file that is hashed again sooner than asked for in the index
# Rows go to disk together: a flush takes as long as encoding some pictures. A kill loses at most these seconds.
APPEND_SECONDS = 2.0
APPEND_BYTES = 64 << 20


@dataclass(frozen=True)
class RowMaker:
    """Pictures to rows: what an `Encoder` is, but in numpy. ``label`` names weights, preprocessing and kind.

    ``prepare`` makes one picture, or ``frames`` frames of a clip, small (its own pixels may be a hundred times the
    encoder's), ``rows`` a batch of what it gave into rows.
    """

    label: str
    prepare: Callable[[Sequence[Image.Image]], Any]
    rows: Callable[[Sequence[Any]], np.ndarray]
    frames: int = 1

    def of(self, picture: Picture) -> Any:
        """What ``prepare`` makes of a picture or clip. Raises `PictureError`."""
        return self.prepare(sample_frames(picture, self.frames))

    def key(self, picture: Picture, content: str) -> str:
        """The key of a picture's row, from that of its content."""
        return f"{content}-{self.frames}" if is_clip(picture) else content


class FeatureStore:
    """Features and pixels of pictures on disk, below ``folder``.

    ``folder``: default ``$TELLAPART_CACHE``, else ``~/.cache/tellapart``. ``limit_gb``: default
    ``$TELLAPART_CACHE_GB``, else 20; beyond it the least recently used encoders are dropped, never the one in use.
    Safe with several processes at once, and under ``kill -9``.
    """

    def __init__(self, folder: str | Path | None = None, *, limit_gb: float | None = None) -> None:
        self.folder = Path(folder or os.environ.get("TELLAPART_CACHE") or "~/.cache/tellapart").expanduser()
        self._rows = RowStore(self.folder, (_limit_gb() if limit_gb is None else limit_gb) * 1e9)

    def features(
        self, items: Sequence[Item], encoder: Encoder, *, batch_size: int = BATCH, progress: bool = True
    ) -> np.ndarray:
        """float32 features N×D (N×P×D where the encoder gives that), rows in the order of ``items``.

        Memory-mapped; writing to the array never reaches the file. Encodes what is not in the store. Raises
        `PictureError` that names the pictures which cannot be read: leave them out with `readable` first.
        """
        return self._array(items, encoder_rows(encoder), batch_size, progress)

    def rows(self, items: Sequence[Item], maker: RowMaker, *, progress: bool = True) -> np.ndarray:
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

        ``label`` must identify everything that the array depends on. Memory-mapped when it comes from disk.
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

    def _array(self, items: Sequence[Item], maker: RowMaker, batch_size: int, progress: bool) -> np.ndarray:
        if not len(items):
            raise TellapartError("no pictures to encode; expected at least one item")
        for _ in range(3):  # another process may drop the table (size limit, --empty) before it is mapped
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
        work = _Filling(self._rows, maker, batch_size)
        with Progress(len(items), f"encoding ({maker.label[:24]})", enabled=progress) as shown:
            for start in range(0, len(items), WINDOW):
                for count in work.window(items[start : start + WINDOW]):
                    shown.advance(count)
            work.flush()
        if damaged := self._rows.damaged.pop(maker.label, 0):
            say(f"{self.folder}: {damaged:,} cached rows were damaged; they are encoded anew")
        return work.keys, work.errors


class _Filling:
    """One pass over the items: each file is opened at most once, and decoded only where its row is missing."""

    def __init__(self, rows: RowStore, maker: RowMaker, batch_size: int) -> None:
        self._rows, self._maker, self._batch_size = rows, maker, batch_size
        self._pending: dict[str, tuple[str, Any]] = {}  # row's key to (name, prepared picture)
        self._encoded: dict[str, np.ndarray] = {}  # row's key to row, not yet on disk
        self._appended = time.monotonic()
        self._hashed: list[tuple[str, tuple[int, int], str]] = []
        self.keys: list[str | None] = []
        self.errors: list[tuple[Item, PictureError]] = []

    def window(self, items: Sequence[Item]) -> Iterator[int]:
        """Take in some items; yields how many more are done."""
        signatures = self._signatures(items)
        known_keys = self._rows.known_files(dict(signatures.values()))
        keys = [known_keys.get(signatures[place][0]) if place in signatures else None for place in range(len(items))]
        keys = [
            key if key is not None or isinstance(item.picture, StoredPicture) else item.picture.key()
            for key, item in zip(keys, items, strict=True)
        ]
        known_rows = self._rows.known_rows(
            self._maker.label,
            [self._maker.key(item.picture, key) for item, key in zip(items, keys, strict=True) if key is not None],
        )
        for place, item in enumerate(items):
            try:
                self.keys.append(self._one(item, signatures.get(place), keys[place], known_rows))
            except PictureError as error:
                self.keys.append(None)
                self.errors.append((item, error))
            yield 1
        self._rows.remember_files(self._hashed)
        self._hashed.clear()

    def flush(self) -> None:
        """Encode what is pending, and append all that is encoded."""
        self._encode()
        if self._encoded:
            self._rows.append(self._maker.label, list(self._encoded), np.stack(list(self._encoded.values())))
            self._encoded.clear()
        self._appended = time.monotonic()

    def _encode(self) -> None:
        if not self._pending:
            return
        rows = self._maker.rows([prepared for _, prepared in self._pending.values()])
        if len(rows) != len(self._pending):
            raise TellapartError(f"{self._maker.label}: {len(rows)} rows for {len(self._pending)} pictures")
        for (key, (name, _)), row in zip(self._pending.items(), rows, strict=True):
            if not np.isfinite(row).all():
                raise TellapartError(f"{self._maker.label}: the encoder gave NaN or infinity for {name}")
            self._encoded[key] = row
        self._pending.clear()

    def _signatures(self, items: Sequence[Item]) -> dict[int, tuple[str, tuple[int, int]]]:
        """Place in the window to (address, signature), of those pictures that are on disk and are there."""
        found: dict[int, tuple[str, tuple[int, int]]] = {}
        for place, item in enumerate(items):
            if isinstance(item.picture, StoredPicture):
                try:
                    # fsencode: a path need not be text, and SQLite takes only text
                    address = os.fsencode(item.picture.address()).decode("utf-8", "backslashreplace")
                    found[place] = (address, item.picture.signature())
                except PictureError:
                    continue  # reading it says so again, where it is reported
        return found

    def _one(
        self, item: Item, file: tuple[str, tuple[int, int]] | None, key: str | None, known_rows: dict[str, int]
    ) -> str:
        """The key of the item's row, which is on disk, or will be after `flush`."""
        picture: Any = item.picture
        new = key is None
        if key is None:
            picture = picture.read()  # the same bytes are hashed and decoded
            key = str(picture.key())
            if file is not None and time.time_ns() - file[1][1] > SETTLED_NS:
                self._hashed.append((*file, key))
        row_key = self._maker.key(item.picture, key)
        if new:
            known_rows |= self._rows.known_rows(self._maker.label, [row_key])
        if not (row_key in known_rows or row_key in self._pending or row_key in self._encoded):
            self._pending[row_key] = (item.picture.name, self._maker.of(picture))
            if len(self._pending) * self._maker.frames >= self._batch_size:
                self._encode()
                if time.monotonic() - self._appended > APPEND_SECONDS or self._pending_bytes() > APPEND_BYTES:
                    self.flush()
        return row_key

    def _pending_bytes(self) -> int:
        return sum(row.nbytes for row in self._encoded.values())


def encoder_rows(encoder: Encoder) -> RowMaker:
    """An encoder as the store uses it: float32 rows, without gradient."""

    def rows(pixels_FCHW: Sequence[Any]) -> np.ndarray:
        import torch

        with torch.no_grad():
            features = encoder.encode(torch.cat(list(pixels_FCHW)))
            if encoder.join is not None:
                each = torch.split(features, [len(frames) for frames in pixels_FCHW])
                features = torch.stack([encoder.join(frames) for frames in each])
        return features.detach().float().cpu().numpy()

    return RowMaker(f"features {encoder.fingerprint}", encoder.pixels, rows, encoder.frames)


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
