"""The feature store: features of frozen encoders and decoded pixels on disk, so that every picture is encoded once.

    store = FeatureStore()
    items = store.readable(dataset, encoder, skipped=dataset.unreadable)   # encodes what is not there yet
    features_ND = store.features(items, encoder)                           # rows in the order of the items

The key of a row is the encoder's fingerprint (weights and preprocessing) and a hash of the picture's content: a renamed
or copied file is not encoded again, a changed one is. A file with the same path, size and modification time is not read
again. Of a clip, `Encoder.frames` frames are encoded and joined to one row, whose key includes their number. A row does
not depend on what else was encoded with it (`alone`). `docs/cache.md` describes the cache.

`Filling` is the pass that encodes what is missing. Each file is opened at most once, and decoded only if its row is
missing. Two processes that encode the same pictures at the same time both do the work, and the first row is kept.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tellapart.data import Skipped
from tellapart.data.pictures import FilePicture, StoredPicture, is_clip, sample_frames
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.features.rows import RowStore, StoredRows, TableUse, row_bytes, smallest_dtype
from tellapart.models.alone import alone
from tellapart.types import Encoder, Item, Picture
from tellapart.utils.messages import Progress, detail, say

BATCH = 64
TOWER_ROWS = 256  # of a frozen encoder that are in memory at once
SMALL = 8 << 20  # bytes of a file that is hashed again sooner than asked for in the index
WINDOW = 512  # items whose keys are looked up at once
# A file changed less than this ago may change again within the clock's grain, and look unchanged.
SETTLED_NS = 2_000_000_000
# Rows go to disk together: a flush takes as long as encoding some pictures. A kill loses at most these seconds.
APPEND_SECONDS = 2.0
APPEND_BYTES = 64 << 20
WAITING_BYTES = 256 << 20  # of pictures that are read and not yet encoded
WORTH_TELLING = 1e9  # bytes to store from which on a line says so


@dataclass(frozen=True)
class RowMaker:
    """Pictures to rows: what an `Encoder` is, but in numpy. ``label`` names weights, preprocessing and kind.

    ``prepare`` makes one picture, or ``frames`` frames of a clip, small (its own pixels may be a hundred times the
    encoder's), ``rows`` a batch of what it gave into rows. ``precision`` and ``name``: of the model.
    """

    label: str
    prepare: Callable[[Sequence[Image.Image]], Any]
    rows: Callable[[Sequence[Any]], np.ndarray]
    frames: int = 1
    precision: str = "fp32"
    name: str = ""

    def of(self, picture: Picture) -> Any:
        """Returns what ``prepare`` makes of a picture or clip. Raises `PictureError`."""
        return self.prepare(sample_frames(picture, self.frames))

    def key(self, picture: Picture, content: str) -> str:
        """Returns the key of a picture's row, from that of its content."""
        return f"{content}-{self.frames}" if is_clip(picture) else content


@dataclass
class _Wanted:
    """A row to be made here: its picture, and the places of all items that it is for."""

    picture: Any
    places: list[int] = field(default_factory=list)


class Filling:
    """Brings the rows of items into the store. ``keys``: by item the row's key, None where it cannot be read."""

    def __init__(self, rows: RowStore, maker: RowMaker, items: Sequence[Item], batch_size: int) -> None:
        self._rows, self._maker, self._items, self._batch_size = rows, maker, items, batch_size
        self._wanted: dict[str, _Wanted] = {}  # not yet encoded
        self._encoded: dict[str, np.ndarray] = {}  # row's key to row, not yet on disk
        self._appended = time.monotonic()
        self._hashed: list[tuple[str, tuple[int, int], str]] = []
        self._told = False
        self._seen = 0
        self.keys: list[str | None] = [None] * len(items)
        self._failed: dict[int, PictureError] = {}  # by place
        self.errors: list[tuple[Item, PictureError]] = []  # in the order of the items, once it ran

    def run(self) -> Iterator[int]:
        """Does it; yields how many more items are done."""
        for start in range(0, len(self._items), WINDOW):
            yield from self._window(start)
        self._flush()
        self.errors = [(self._items[place], self._failed[place]) for place in sorted(self._failed)]

    def _window(self, start: int) -> Iterator[int]:
        """Takes in some items."""
        items = self._items[start : start + WINDOW]
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
            self._seen = start + place + 1
            try:
                self._one(start + place, item, signatures.get(place), keys[place], known_rows)
            except PictureError as error:
                self._failed[start + place] = error
            yield 1
        self._rows.remember_files(self._hashed)
        self._hashed.clear()

    def _one(
        self, place: int, item: Item, file: tuple[str, tuple[int, int]] | None, key: str | None, known: dict[str, int]
    ) -> None:
        """Finds out an item's key, and whether its row is to be made."""
        picture: Any = item.picture
        new = key is None
        if key is None:
            picture = picture.read()  # the same bytes are hashed and decoded
            key = str(picture.key())
            if file is not None and time.time_ns() - file[1][1] > SETTLED_NS:
                self._hashed.append((*file, key))
        row_key = self._maker.key(item.picture, key)
        self.keys[place] = row_key
        if new:
            known |= self._rows.known_rows(self._maker.label, [row_key])
        if row_key in known or row_key in self._encoded:
            return
        if row_key in self._wanted:
            self._wanted[row_key].places.append(place)
            return
        self._wanted[row_key] = _Wanted(picture, [place])
        waiting = sum(len(getattr(one.picture, "data", b"")) for one in self._wanted.values())
        if len(self._wanted) * self._maker.frames >= self._batch_size or waiting > WAITING_BYTES:
            self._encode()
            if time.monotonic() - self._appended > APPEND_SECONDS or self._encoded_bytes() > APPEND_BYTES:
                self._flush()

    def _encode(self) -> None:
        """Makes the rows that are wanted, those except those that another process has stored meanwhile."""
        missing, self._wanted = self._wanted, {}
        for key in self._rows.known_rows(self._maker.label, list(missing)):
            del missing[key]
        prepared: dict[str, Any] = {}
        for key, one in missing.items():
            try:
                prepared[key] = self._maker.of(one.picture)
            except PictureError as error:
                for place in one.places:
                    self.keys[place] = None
                    self._failed[place] = error
        if not prepared:
            return
        rows = self._maker.rows(list(prepared.values()))
        if len(rows) != len(prepared):
            raise TellapartError(f"{self._maker.label}: {len(rows)} rows for {len(prepared)} pictures")
        for key, row in zip(prepared, rows, strict=True):
            if not np.isfinite(row).all():
                name = self._items[missing[key].places[0]].picture.name
                raise TellapartError(f"{self._maker.label}: the encoder gave NaN or infinity for {name}")
            self._encoded[key] = row
        if not self._told:
            self._tell(np.asarray(rows))

    def _flush(self) -> None:
        """Encodes what is wanted, and appends all that is encoded."""
        if self._wanted:
            self._encode()
        if self._encoded:
            rows = np.stack(list(self._encoded.values()))
            self._rows.append(self._maker.label, list(self._encoded), rows, self._maker.precision, self._maker.name)
            self._encoded.clear()
        self._appended = time.monotonic()

    def _tell(self, rows: np.ndarray) -> None:
        """Says how much will be stored, once the shape of a row is known and before the rest is encoded."""
        self._told = True
        dtype = self._rows.dtype_of(self._maker.label) or smallest_dtype(rows, self._maker.precision)
        each = row_bytes(dtype, rows.shape[1:])
        left = len(self._items) - self._seen + len(rows)
        room = self._rows.room()
        shape = "×".join(map(str, rows.shape[1:])) or "1"
        kind = dtype if dtype == "bfloat16" else np.dtype(dtype).name
        line = (
            f"{self._rows.folder}: at most {left:,} pictures × {shape} {kind} = {left * each / 1e9:,.1f} GB to store; "
            f"{room.used / 1e9:,.1f} of {room.limit / 1e9:g} GB are used, {room.free / 1e9:,.1f} GB of disk are free"
        )
        short = left * each > min(room.limit, room.free + room.used)
        if short:
            line += '; where that is too little, raise TELLAPART_CACHE_GB, or keep none of it: features = "off"'
        (say if short or left * each > WORTH_TELLING else detail)(line)

    def _signatures(self, items: Sequence[Item]) -> dict[int, tuple[str, tuple[int, int]]]:
        """Place in the window to (address, signature), of those pictures that are on disk and are there."""
        signatures: dict[int, tuple[str, tuple[int, int]]] = {}
        for place, item in enumerate(items):
            if isinstance(item.picture, StoredPicture):
                try:
                    # fsencode: a path need not be text, and SQLite takes only text
                    address = os.fsencode(item.picture.address()).decode("utf-8", "backslashreplace")
                    signatures[place] = (address, item.picture.signature())
                except PictureError:
                    continue  # reading it says so again, where it is reported
        return signatures

    def _encoded_bytes(self) -> int:
        return sum(row.nbytes for row in self._encoded.values())


class FeatureStore:
    """Features and pixels of pictures on disk, below ``folder``.

    ``folder``: default ``$TELLAPART_CACHE``, else ``~/.cache/tellapart``. ``limit_gb``: default
    ``$TELLAPART_CACHE_GB``, else 20; beyond it the rows of the least recently used encoders are dropped.
    Safe with several processes at once, and under ``kill -9``.
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
        self._fill_by_tower(items, encoder, batch_size, progress)
        return self._array(items, encoder_rows(encoder), batch_size, progress)

    def rows(self, items: Sequence[Item], maker: RowMaker, *, progress: bool = True) -> StoredRows:
        """Returns what ``maker`` makes of pictures, such as those of `training.batches.TrainingPixels`; else as
        `features`.
        """
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
        """Encodes what is missing. Returns the items whose rows are in the store; ``skipped`` gets the others.

        encoder: or the `RowMaker` of other rows.
        """
        if not isinstance(encoder, RowMaker):
            self._fill_by_tower(items, encoder, batch_size, progress)
        maker = encoder if isinstance(encoder, RowMaker) else encoder_rows(encoder)
        keys, errors = self._fill(items, maker, batch_size, progress)
        if skipped is not None:
            for item, error in errors:
                skipped.add_error(item.picture.name, error)
        self._rows.touch(maker.label)
        return [item for item, key in zip(items, keys, strict=True) if key is not None]

    def cached(self, label: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        """Returns the array that ``make`` returns, stored under ``label``; ``make`` is called only where nothing is
        stored.

        ``label`` must identify everything that the array depends on.
        """
        known = self._rows.read(label, ["all"])
        if known is None:
            array = make()
            self._rows.append(label, ["all"], array[None])
        self._rows.touch(label)
        return array if known is None else known[0]

    def digest(self, path: Path) -> str:
        """Returns the content key of a file of any size, read again only where its size or time of change is another.

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
        """Returns the contents of the cache, last used first."""
        return self._rows.usage()

    def empty(self) -> int:
        """Drops everything. Returns the number of bytes freed."""
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

    def _fill_by_tower(self, items: Sequence[Item], encoder: Encoder, batch_size: int, progress: bool) -> None:
        """Brings the rows of pictures that stand still into the store, by those of the encoder's ``tower``, if any."""
        if encoder.tower is None:
            return
        tower, maker = encoder_rows(encoder.tower), encoder_rows(encoder)
        still = [item for item in items if not is_clip(item.picture)]
        keys = list(dict.fromkeys(key for key in self._fill(still, tower, batch_size, progress)[0] if key is not None))
        known = self._rows.known_rows(maker.label, keys)
        missing = [key for key in keys if key not in known]
        for start in range(0, len(missing), TOWER_ROWS):
            some = missing[start : start + TOWER_ROWS]
            if (rows := self._rows.read(tower.label, some)) is None:
                return  # dropped meanwhile: they are encoded as others are
            self._rows.append(maker.label, some, head_rows(encoder, np.asarray(rows)), maker.precision, maker.name)
        self._rows.touch(tower.label)

    def _fill(
        self, items: Sequence[Item], maker: RowMaker, batch_size: int, progress: bool
    ) -> tuple[list[str | None], list[tuple[Item, PictureError]]]:
        """Brings the rows of ``items`` into the store. Returns keys (None: unreadable) and errors."""
        work = Filling(self._rows, maker, items, batch_size)
        with Progress(len(items), f"encoding ({maker.label[:24]})", enabled=progress) as shown:
            for count in work.run():
                shown.advance(count)
        if damaged := self._rows.damaged.pop(maker.label, 0):
            say(f"{self.folder}: {damaged:,} cached rows were damaged; they are encoded anew")
        return work.keys, work.errors


def head_rows(encoder: Encoder, rows_NP: np.ndarray) -> np.ndarray:
    """Returns the features that an encoder gives of the rows of its ``tower``."""
    tower_NP = torch.from_numpy(rows_NP)
    with torch.no_grad():
        features = alone(lambda some_R: encoder.encode(tower_NP[some_R]), len(tower_NP))
        if encoder.join is not None:
            features = torch.stack([encoder.join(one) for one in features[:, None]])
    return features.float().cpu().numpy()


def encoder_rows(encoder: Encoder) -> RowMaker:
    """Returns an encoder as the store uses it: float32 rows, without gradient. Half precision is kept as such on
    disk.
    """

    def rows(pixels_FCHW: Sequence[Any]) -> np.ndarray:
        with torch.no_grad():
            frames_FCHW = torch.cat(list(pixels_FCHW))
            features = alone(lambda some_R: encoder.encode(frames_FCHW[some_R]), len(frames_FCHW))
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
