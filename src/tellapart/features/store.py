"""The feature store: features of frozen encoders and decoded pixels on disk, so that every picture is encoded once.

    store = FeatureStore()
    items = store.readable(dataset, encoder, skipped=dataset.unreadable)   # encodes what is not there yet
    features_ND = store.features(items, encoder)                           # rows in the order of the items

The key of a row is the encoder's fingerprint (weights and preprocessing) and a hash of the picture's content: a renamed
or copied file is not encoded again, a changed one is. A file with the same path, size and modification time is not read
again. Of a clip, `Encoder.frames` frames are encoded and joined to one row, whose key includes their number.
`docs/cache.md` describes the cache.

`Filling` is the pass that encodes what is missing. Each file is opened at most once, and decoded only where its row is
missing and nobody else is making it: rows are claimed (`Claims`) before they are decoded, and what another process is
making is waited for at the end. Where that process dies, its pictures are made here. `EncodedRows` carries rows to the
store of another machine.

`RowStore` is the cache itself, rows of numbers on disk, found by the content key of a picture:

    FOLDER/index.sqlite         which tables there are, which key has which row, and which file has which key
    FOLDER/rows/NAME-0000.bin   rows 0 to P − 1 of a table, one after the other
    FOLDER/rows/NAME.bin        all rows of a table that tellapart 0.1 wrote

The index is opened for each transaction. The rollback journal (not WAL) is used, for it also works on the network file
systems where home folders lie. A row is valid once its bytes are flushed and the index lists it, in this order and
under SQLite's write lock. A process killed at any moment leaves at most bytes beyond the last valid row, which the next
process overwrites. Several processes may read and write at once.

Every row has a checksum. A process verifies it on the first access to the row; a damaged row is dropped and counted
(`RowStore.damaged`), and then computed again.

While rows of a file are mapped, its reader holds a shared lock of the kernel on it. So eviction sees which files are
open, in whatever process, and a process killed at any moment leaves no lock behind.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import sqlite3
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from PIL import Image

from tellapart.data import Skipped
from tellapart.data.pictures import FilePicture, StoredPicture, is_clip, sample_frames
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.types import Encoder, Item, Picture
from tellapart.utils.messages import Progress, detail, say

__all__ = ["FeatureStore", "RowMaker", "StoredRows", "encoder_rows"]

BATCH = 64
ENCODED = 64 * 3 * 224**2  # values of pixels that a vision encoder reads at once on a CPU: 21 pictures of 384 pixels
TOWER_ROWS = 256  # of a frozen encoder that are in memory at once
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
            made = make()
            self._rows.append(label, ["all"], made[None])
        self._rows.touch(label)
        return made if known is None else known[0]

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
            with torch.no_grad():
                features = encoder.encode(torch.from_numpy(np.asarray(rows)))
                if encoder.join is not None:
                    features = torch.stack([encoder.join(one) for one in features[:, None]])
            self._rows.append(maker.label, some, features.float().cpu().numpy(), maker.precision, maker.name)
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


def encoder_rows(encoder: Encoder) -> RowMaker:
    """Returns an encoder as the store uses it: float32 rows, without gradient. Half precision is kept as such on
    disk.
    """

    def rows(pixels_FCHW: Sequence[Any]) -> np.ndarray:
        with torch.no_grad():
            features = encode_in_parts(encoder, torch.cat(list(pixels_FCHW)))
            if encoder.join is not None:
                each = torch.split(features, [len(frames) for frames in pixels_FCHW])
                features = torch.stack([encoder.join(frames) for frames in each])
        return features.detach().float().cpu().numpy()

    label = f"features {encoder.fingerprint}" + (f" {encoder.precision}" if encoder.precision != "fp32" else "")
    return RowMaker(label, encoder.pixels, rows, encoder.frames, encoder.precision, encoder.name)


def encode_in_parts(encoder: Encoder, pixels_FCHW: torch.Tensor) -> torch.Tensor:
    """Returns the features of pictures or frames, on a CPU of so many at a time as `ENCODED` allows.

    What a layer makes of 64 pictures of 384 pixels (ViT-B: 577 tokens × 3,072 numbers) is 1.4 GB with its copies.
    """
    at_once = max(1, ENCODED // max(1, pixels_FCHW[:1].numel()))
    first = encoder.encode(pixels_FCHW[:at_once])
    others = pixels_FCHW[at_once:]
    parts = others.split(at_once if first.device.type == "cpu" else max(1, len(others)))
    return torch.cat([first, *(encoder.encode(part) for part in parts if len(part))])


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


_FILES: dict[Path, int] = {}  # by path; open while this process has a claim: closing drops all of its locks there
_HELD: dict[tuple[int, Path], set[int]] = {}  # by process and path: the kernel grants a process its own locks again


class Claims:
    """The claims of one pass over pictures on rows of one table."""

    def __init__(self, folder: Path, label: str) -> None:
        self._path, self._label = folder / "claims.lock", label
        self._places: dict[str, int] = {}

    def claim(self, key: str) -> bool:
        """Returns whether nobody else is making this row; it is this pass's then, until `release`."""
        if key in self._places:
            return True
        digest = hashlib.blake2b(f"{self._label}\0{key}".encode(), digest_size=8).digest()
        place = int.from_bytes(digest, "little") >> 2
        held = _HELD.setdefault((os.getpid(), self._path), set())
        if place in held:  # another pass of this process
            return False
        try:
            fcntl.lockf(self._file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                raise
        held.add(place)
        self._places[key] = place
        return True

    def release(self) -> None:
        """Gives all claims back: the rows are in the store, or will not be made."""
        held = _HELD.get((os.getpid(), self._path), set())
        for place in self._places.values():
            with contextlib.suppress(OSError):
                fcntl.lockf(self._file(), fcntl.LOCK_UN, 1, place)
            held.discard(place)
        self._places.clear()
        if not held and self._path in _FILES:  # no lock of this process is left that closing would drop
            os.close(_FILES.pop(self._path))

    def _file(self) -> int:
        """Returns the claims file, open. A forked process has its own locks, and the file that it inherited serves."""
        if self._path not in _FILES or not self._is_there(_FILES[self._path]):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _FILES[self._path] = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return _FILES[self._path]

    def _is_there(self, file: int) -> bool:
        """Returns whether the open file is still the one under its name."""
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except OSError:
            return False


WINDOW = 512  # items whose keys are looked up at once
# A file changed less than this ago may change again within the clock's grain, and look unchanged.
SETTLED_NS = 2_000_000_000
# Rows go to disk together: a flush takes as long as encoding some pictures. A kill loses at most these seconds.
APPEND_SECONDS = 2.0
APPEND_BYTES = 64 << 20
WAITING_BYTES = 256 << 20  # of pictures that are read and not yet encoded
POLL_SECONDS = 0.2  # between looks at what another process makes
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
        self._claims = Claims(rows.folder, maker.label)
        self._wanted: dict[str, _Wanted] = {}  # claimed, not yet encoded
        self._elsewhere: dict[str, list[int]] = {}  # claimed by another process
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
        try:
            for start in range(0, len(self._items), WINDOW):
                yield from self._window(start)
            self._flush()
            while self._elsewhere:
                yield from self._wait()
            self.errors = [(self._items[place], self._failed[place]) for place in sorted(self._failed)]
        finally:
            self._claims.release()

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
                yield self._one(start + place, item, signatures.get(place), keys[place], known_rows)
            except PictureError as error:
                self._failed[start + place] = error
                yield 1
        self._rows.remember_files(self._hashed)
        self._hashed.clear()

    def _one(
        self, place: int, item: Item, file: tuple[str, tuple[int, int]] | None, key: str | None, known: dict[str, int]
    ) -> int:
        """Finds out an item's key, and whether its row is to be made: 1, or 0 where another process makes it."""
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
            return 1
        if row_key in self._wanted:
            self._wanted[row_key].places.append(place)
            return 1
        if row_key in self._elsewhere or not self._claims.claim(row_key):
            self._elsewhere.setdefault(row_key, []).append(place)
            return 0
        self._wanted[row_key] = _Wanted(picture, [place])
        waiting = sum(len(getattr(one.picture, "data", b"")) for one in self._wanted.values())
        if len(self._wanted) * self._maker.frames >= self._batch_size or waiting > WAITING_BYTES:
            self._encode()
            if time.monotonic() - self._appended > APPEND_SECONDS or self._encoded_bytes() > APPEND_BYTES:
                self._flush()
        return 1

    def _encode(self) -> None:
        """Makes the rows that are wanted, those left out that another process stored before they were claimed here."""
        wanted, self._wanted = self._wanted, {}
        for key in self._rows.known_rows(self._maker.label, list(wanted)):
            del wanted[key]
        prepared: dict[str, Any] = {}
        for key, one in wanted.items():
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
                name = self._items[wanted[key].places[0]].picture.name
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
        self._claims.release()
        self._appended = time.monotonic()

    def _wait(self) -> Iterator[int]:
        """Looks up what became of the rows that other processes make; makes here what nobody makes any more."""
        known = self._rows.known_rows(self._maker.label, list(self._elsewhere))
        for key in [key for key in self._elsewhere if key in known]:
            yield len(self._elsewhere.pop(key))
        orphans = [key for key in self._elsewhere if self._claims.claim(key)]
        for key in orphans:
            places = self._elsewhere.pop(key)
            picture = self._items[places[0]].picture
            try:
                whole = picture.read() if isinstance(picture, StoredPicture) else picture
                self._wanted[key] = _Wanted(whole, places)
            except PictureError as error:
                for place in places:
                    self.keys[place] = None
                    self._failed[place] = error
            if len(self._wanted) * self._maker.frames >= self._batch_size:
                self._encode()
            yield len(places)
        self._flush()
        if self._elsewhere and not orphans:
            detail(f"{len(self._elsewhere):,} pictures are being encoded by another process; waiting for them")
            time.sleep(POLL_SECONDS)

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

    def _encoded_bytes(self) -> int:
        return sum(row.nbytes for row in self._encoded.values())


@dataclass(frozen=True)
class EncodedRows:
    """Rows N×… of items; ``label`` and ``precision`` of the table that they are of. ``files`` (address, size, time of
    change in ns, content key) are those of the pictures that lie in files."""

    label: str
    precision: str
    ids: list[str]
    keys: list[str]
    rows_ND: np.ndarray
    files: list[tuple[str, int, int, str]]

    def save(self, path: Path) -> None:
        """As an ``.npz`` whose bytes depend on the content alone."""
        texts = {"ids": self.ids, "keys": self.keys, "addresses": [file[0] for file in self.files]}
        texts |= {"contents": [file[3] for file in self.files], "label": [self.label], "precision": [self.precision]}
        arrays = {name: np.frombuffer("\n".join(lines).encode("utf-8"), np.uint8) for name, lines in texts.items()}
        numbers = np.array([file[1:3] for file in self.files], np.int64).reshape(-1, 2)
        with path.open("wb") as file:
            np.savez(file, rows=self.rows_ND, signatures=numbers, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> EncodedRows:
        """Raises `UsageError` where it is none."""
        try:
            with np.load(path) as found:  # never unpickles: an object array is an error

                def lines(name: str) -> list[str]:
                    text = found[name].tobytes().decode("utf-8")
                    return text.split("\n") if text else []

                sizes = found["signatures"].tolist()
                files = [
                    (address, size, time, content)
                    for address, (size, time), content in zip(lines("addresses"), sizes, lines("contents"), strict=True)
                ]
                return cls(lines("label")[0], lines("precision")[0], lines("ids"), lines("keys"), found["rows"], files)
        except Exception as error:  # NumPy and zipfile answer damaged bytes with almost any
            raise UsageError(f"{path}: no rows of a feature store ({error})") from None


def encode_rows(store: RowStore, items: Sequence[Item], encoder: Encoder) -> tuple[EncodedRows, list[PictureError]]:
    """Encodes what is not in the store. Returns the rows of readable pictures, and the errors of the others."""
    maker: RowMaker = encoder_rows(encoder)
    filling = Filling(store, maker, items, BATCH)
    for _ in filling.run():
        pass
    kept = [(item, key) for item, key in zip(items, filling.keys, strict=True) if key is not None]
    keys = [key for _, key in kept]
    stored = store.read(maker.label, keys) if keys else np.zeros((0, 1), np.float32)
    if stored is None:
        raise UsageError(f"{store.folder}: the cache is emptied as fast as it fills; raise TELLAPART_CACHE_GB")
    ids = [" ".join(item.id.split("\n")) for item, _ in kept]
    rows = EncodedRows(maker.label, maker.precision, ids, keys, np.asarray(stored), _files(store, kept))
    return rows, [error for _, error in filling.errors]


def take_rows(store: RowStore, encoded: EncodedRows) -> None:
    """Adds rows to the store that it does not have."""
    known = store.known_rows(encoded.label, encoded.keys)
    new = [place for place, key in enumerate(encoded.keys) if key not in known]
    first = {encoded.keys[place]: place for place in reversed(new)}  # of equal pictures one row
    if first:
        places = sorted(first.values())
        keys = [encoded.keys[place] for place in places]
        store.append(encoded.label, keys, encoded.rows_ND[places], encoded.precision)
    store.remember_files([(address, (size, time), content) for address, size, time, content in encoded.files])


def _files(store: RowStore, kept: Sequence[tuple[Item, str]]) -> list[tuple[str, int, int, str]]:
    """Returns what the store knows of the files of these pictures, those that are text by name."""
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


TITLES = "CREATE TABLE IF NOT EXISTS titles (name TEXT PRIMARY KEY, title TEXT NOT NULL)"  # earlier versions had none
KNOWN_ROWS = "SELECT key, row FROM rows WHERE name = ? AND key IN"


@dataclass(frozen=True)
class TableUse:
    """One line of ``tellapart cache``. ``used`` is in seconds since 1970; ``name`` is "" where it was not kept."""

    name: str
    label: str
    pictures: int
    bytes: int
    used: float


@dataclass(frozen=True)
class Room:
    """Bytes: those of the store, the most that it may hold, and those that are free on its disk."""

    used: int
    limit: float
    free: int


class RowStore:
    """Tables of rows below ``folder``, at most ``limit_bytes`` of them: beyond, the least recently used shards go.

    A shard that some process has open stays, and so do those of the table that is being written.
    """

    def __init__(self, folder: Path, limit_bytes: float) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.damaged: dict[str, int] = {}  # label to rows dropped by this process
        self._index = CacheIndex(folder)
        self._checked: dict[str, set[int]] = {}  # table's name to its rows that this process has compared or written

    # -- reading

    def known_rows(self, label: str, keys: Sequence[str]) -> dict[str, int]:
        """Returns the rows of those keys that the table has."""
        name = _name(label)
        with self._index.transaction("DEFERRED") as index:
            table = _table(index, name)
            if table is None:
                return {}
            known = look_up(index, KNOWN_ROWS, keys, name)
            sound = self._intact(index, table, known)
        self._forget(label, known, sound)
        return sound

    def known_files(self, signatures: Mapping[str, tuple[int, int]]) -> dict[str, str]:
        """Returns the content keys of those files that were hashed before and have the same (size, mtime_ns) still."""
        paths = list(signatures)
        query = "SELECT path, size || ' ' || mtime_ns || ' ' || key FROM files WHERE path IN"
        with self._index.transaction("DEFERRED") as index:
            known = look_up(index, query, paths)
        split = {path: text.split(" ", 2) for path, text in known.items()}
        return {p: key for p, (size, mtime, key) in split.items() if (int(size), int(mtime)) == signatures[p]}

    def remember_files(self, files: Iterable[tuple[str, tuple[int, int], str]]) -> None:
        """Keeps (path, (size, mtime_ns), content key) for `known_files`."""
        rows = [(path, *signature, key) for path, signature, key in files]
        if rows:
            with self._index.transaction("IMMEDIATE") as index:
                index.executemany("REPLACE INTO files VALUES (?, ?, ?, ?)", rows)

    def read(self, label: str, keys: Sequence[str]) -> StoredRows | None:
        """The rows of ``keys``, in their order; None where one of them is not there. Their shards are open until the
        result is dropped."""
        name = _name(label)
        with self._index.transaction("DEFERRED") as index:  # no eviction may come between the answer and the mapping
            table = _table(index, name)
            known = look_up(index, KNOWN_ROWS, keys, name)
            if table is None or any(key not in known for key in keys):
                return None
            sound = self._intact(index, table, known)
            if len(sound) == len(known):
                row_N = np.fromiter((known[key] for key in keys), np.int64, len(keys))
                shards = {shard: OpenShard.open(table, self.folder, shard) for shard in _shards(table, known.values())}
                return StoredRows(table, shards, row_N)
        self._forget(label, known, sound)
        return None

    def dtype_of(self, label: str) -> str | None:
        """Returns the type of a table's rows on disk; None where there is no table."""
        with self._index.transaction("DEFERRED") as index:
            table = _table(index, _name(label))
        return None if table is None else table.dtype

    # -- writing

    def append(
        self, label: str, keys: Sequence[str], rows: np.ndarray, precision: str = "fp32", title: str = ""
    ) -> None:
        """Adds rows; keys that are there already (another process was faster) keep theirs.

        precision: of the model that made them; a new table keeps half precision as such where no bit is lost by it.
        title: what `usage` calls the table.
        Raises `TellapartError` where the disk is full (nothing half-written counts) or the rows' shape is another
        than the table's.
        """
        name = _name(label)
        with self._index.transaction("IMMEDIATE") as index:
            table = _table(index, name) or self._new_table(index, label, rows, precision)
            index.execute(TITLES)
            if title:
                index.execute("REPLACE INTO titles VALUES (?, ?)", (name, title))
            packed = _packed(rows, table, label)
            if table.count and self._sizes(table).get(last := table.shard_of(table.count - 1), 0) < (
                table.rows_in(last) * table.row_bytes
            ):
                self._drop(index, table, last)  # the file was lost: what is written behind it must not bring it back
            known = look_up(index, KNOWN_ROWS, keys, name)
            fresh = list({key: place for place, key in enumerate(keys) if key not in known}.items())
            new = packed[[place for _, place in fresh]]
            self._make_room(index, name, new.nbytes)
            self._write(table, new)
            numbered = [(name, key, table.count + n, zlib.crc32(new[n])) for n, (key, _) in enumerate(fresh)]
            index.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", numbered)
            index.execute("UPDATE tables SET count = count + ? WHERE name = ?", (len(fresh), name))

    def touch(self, label: str) -> None:
        """Marks a table as used now, and drops least recently used shards of others while all exceed the limit."""
        with self._index.transaction("IMMEDIATE") as index:
            index.execute("UPDATE tables SET used = ? WHERE name = ?", (time.time(), _name(label)))
            self._make_room(index, _name(label), 0)

    def empty(self) -> int:
        """Drops every table, every remembered file and a damaged index. Returns the bytes set free."""
        if not self.folder.is_dir():
            return 0
        freed = sum(file.stat().st_size for file in self.folder.glob("rows/*.bin"))
        try:
            with self._index.transaction("EXCLUSIVE") as index:
                for file in self.folder.glob("rows/*.bin"):
                    file.unlink(missing_ok=True)
                for table in ("tables", "rows", "files"):
                    index.execute(f"DELETE FROM {table}")
        except TellapartError:
            for file in [*self.folder.glob("rows/*.bin"), *self.folder.glob("index.sqlite*")]:
                file.unlink(missing_ok=True)
        return freed

    def remove(self, label: str) -> int:
        """Drops one table. Returns the bytes set free."""
        with self._index.transaction("EXCLUSIVE") as index:
            if (table := _table(index, _name(label))) is None:
                return 0
            freed = sum(self._sizes(table).values())
            for shard in table.shards():
                self._drop(index, table, shard)
            index.execute("DELETE FROM tables WHERE name = ?", (table.name,))
        return freed

    def usage(self) -> list[TableUse]:
        """Returns the contents of the cache, last used first."""
        if not self._index.path.is_file():
            return []
        with self._index.transaction("DEFERRED") as index:
            found = index.execute(
                "SELECT name, label, used, (SELECT COUNT(*) FROM rows WHERE rows.name = tables.name) FROM tables "
                "ORDER BY used DESC"
            ).fetchall()
            tables = {name: _table(index, name) for name, *_ in found}
            there = index.execute("SELECT 1 FROM sqlite_master WHERE name = 'titles'").fetchone()
            titles = dict(index.execute("SELECT name, title FROM titles").fetchall()) if there else {}
        return [
            TableUse(titles.get(name, ""), label, count, sum(self._sizes(tables[name]).values()), used)
            for name, label, used, count in found
        ]

    def room(self) -> Room:
        """Returns what the store holds, may hold, and could hold."""
        with cache_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            return Room(sum(use.bytes for use in self.usage()), self.limit_bytes, shutil.disk_usage(self.folder).free)

    # -- inside

    def _sizes(self, table: Table | None) -> dict[int, int]:
        """Returns bytes of the shards that are there."""
        if table is None:
            return {}
        files = {shard: table.file(self.folder, shard) for shard in table.shards()}
        return {shard: file.stat().st_size for shard, file in files.items() if file.is_file()}

    def _intact(self, index: sqlite3.Connection, table: Table, known: Mapping[str, int]) -> dict[str, int]:
        """Returns those of the ``known`` rows whose bytes are as they were written. Rows of version 1 pass."""
        whole = {shard for shard, size in self._sizes(table).items() if size >= table.rows_in(shard) * table.row_bytes}
        checked = self._checked.setdefault(table.name, set())
        lost = {key for key, row in known.items() if table.shard_of(row) not in whole}
        new = [key for key, row in known.items() if row not in checked and key not in lost]
        if new:
            sums = look_up(index, "SELECT key, sum FROM rows WHERE name = ? AND key IN", new, table.name)
            shards = {n: OpenShard.open(table, self.folder, n) for n in _shards(table, (known[key] for key in new))}
            for key in new:
                row, shard = known[key], table.shard_of(known[key])
                first = 0 if table.per_shard is None else shard * table.per_shard
                if sums[key] is not None and zlib.crc32(shards[shard].rows[row - first]) != sums[key]:
                    lost.add(key)
                else:
                    checked.add(row)
        return {key: row for key, row in known.items() if key not in lost}

    def _forget(self, label: str, known: Mapping[str, int], sound: Mapping[str, int]) -> None:
        """Drops the damaged rows, those known and not sound; what another process wrote in their place stays."""
        name, damaged = _name(label), [(key, row) for key, row in known.items() if key not in sound]
        if not damaged:
            return
        with self._index.transaction("IMMEDIATE") as index:
            rows = [(name, key, row) for key, row in damaged]
            index.executemany("DELETE FROM rows WHERE name = ? AND key = ? AND row = ?", rows)
        self._checked.get(name, set()).difference_update(row for _, row in damaged)
        self.damaged[label] = self.damaged.get(label, 0) + len(damaged)

    def _new_table(self, index: sqlite3.Connection, label: str, rows: np.ndarray, precision: str) -> Table:
        dtype, shape = smallest_dtype(rows, precision), rows.shape[1:]
        table = Table(_name(label), dtype, shape, 0, rows_per_shard(dtype, shape))
        values = (table.name, label, dtype, " ".join(map(str, shape)), 0, time.time(), table.per_shard)
        index.execute("INSERT INTO tables VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        return table

    def _write(self, table: Table, rows: np.ndarray) -> None:
        """Puts rows behind the counted ones, into as many shards as they need."""
        done = 0
        while done < len(rows):
            row = table.count + done
            shard = table.shard_of(row)
            first, end = 0, len(rows)
            if table.per_shard is not None:
                first = shard * table.per_shard
                end = min(end, done + first + table.per_shard - row)
            write_rows(table.file(self.folder, shard), (row - first) * table.row_bytes, rows[done:end])
            done = end

    def _make_room(self, index: sqlite3.Connection, keep: str, more: int) -> None:
        """Drops shards, the least recently used table's first, until ``more`` bytes fit; none that is open."""
        names = [name for (name,) in index.execute("SELECT name FROM tables ORDER BY used").fetchall()]
        tables = {name: table for name in names if (table := _table(index, name)) is not None}
        sizes = {name: self._sizes(table) for name, table in tables.items()}
        over = sum(sum(of.values()) for of in sizes.values()) + more - self.limit_bytes
        for name, table in tables.items():
            for shard, size in sizes[name].items():
                if over <= 0 or name == keep:
                    break
                if is_open(table.file(self.folder, shard)):
                    continue
                self._drop(index, table, shard)
                over -= size
            if name != keep and not self._sizes(table):
                index.execute("DELETE FROM tables WHERE name = ?", (name,))
                self._checked.pop(name, None)

    def _drop(self, index: sqlite3.Connection, table: Table, shard: int) -> None:
        # The file first: killed in between, the index speaks of a file that is not there, which `_intact` notices.
        table.file(self.folder, shard).unlink(missing_ok=True)
        first = 0 if table.per_shard is None else shard * table.per_shard
        span = (table.name, first, first + table.rows_in(shard))
        index.execute("DELETE FROM rows WHERE name = ? AND row >= ? AND row < ?", span)
        self._checked.get(table.name, set()).difference_update(range(*span[1:]))


def _table(index: sqlite3.Connection, name: str) -> Table | None:
    found = index.execute("SELECT dtype, shape, count, per_shard FROM tables WHERE name = ?", (name,)).fetchone()
    if found is None:
        return None
    dtype, shape, count, per_shard = found
    return Table(name, dtype, tuple(int(length) for length in shape.split()), count, per_shard)


def _shards(table: Table, rows: Iterable[int]) -> set[int]:
    return {table.shard_of(row) for row in rows}


def _packed(rows: np.ndarray, table: Table, label: str) -> np.ndarray:
    """Returns rows in the table's type. Raises `TellapartError` where they do not fit it."""
    fits = rows.shape[1:] == table.shape
    if fits and rows.dtype.str != table.dtype:  # half precision: the same bits must come back
        with np.errstate(over="ignore"):
            fits = rows.dtype == np.float32 and np.array_equal(unpack(pack(rows, table.dtype), table.dtype), rows)
    if not fits:
        raise TellapartError(
            f"{label}: features of shape {rows.shape[1:]} in {rows.dtype} where the cache has {table.shape} in "
            f"{np.dtype(table.dtype) if table.dtype != 'bfloat16' else 'bfloat16'} under the same fingerprint; type: "
            "tellapart cache --empty"
        )
    return pack(rows, table.dtype)


def _name(label: str) -> str:
    return hashlib.blake2b(label.encode(), digest_size=10).hexdigest()


SHARD_BYTES = 1 << 30  # a file of rows is no larger, unless one row is
BF16 = "bfloat16"  # numpy has no such type: rows are kept as the upper halves of float32


@dataclass(frozen=True)
class Table:
    """Rows of one shape and type: ``count`` were written, ``per_shard`` to a file (None: all in one)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    per_shard: int | None

    @property
    def disk_dtype(self) -> np.dtype[Any]:
        """As numpy reads the file."""
        return np.dtype(np.uint16) if self.dtype == BF16 else np.dtype(self.dtype)

    @property
    def row_bytes(self) -> int:
        return row_bytes(self.dtype, self.shape)

    def shard_of(self, row: int) -> int:
        """Returns the number of the shard that a row is in."""
        return 0 if self.per_shard is None else row // self.per_shard

    def file(self, folder: Path, shard: int) -> Path:
        """Returns the file of a shard."""
        return folder / "rows" / (f"{self.name}.bin" if self.per_shard is None else f"{self.name}-{shard:04}.bin")

    def shards(self) -> range:
        """Returns the numbers of all shards that rows were written to."""
        return range(self.shard_of(self.count - 1) + 1 if self.count else 0)

    def rows_in(self, shard: int) -> int:
        """Returns how many rows were written to a shard."""
        return self.count if self.per_shard is None else min(self.per_shard, self.count - shard * self.per_shard)


def row_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Returns bytes of one row on disk."""
    return int(np.prod(shape, dtype=np.int64)) * (2 if dtype == BF16 else np.dtype(dtype).itemsize)


def rows_per_shard(dtype: str, shape: Sequence[int]) -> int:
    """Returns how many rows a new table puts into a file."""
    return max(1, SHARD_BYTES // max(1, row_bytes(dtype, shape)))


def pack(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Returns rows as they lie on disk."""
    rows = np.ascontiguousarray(rows)
    if dtype == BF16:
        upper: np.ndarray = (rows.astype(np.float32, copy=False).view(np.uint32) >> 16).astype(np.uint16)
        return upper
    return rows.astype(np.dtype(dtype), copy=False)


def unpack(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Returns rows from disk for use: half precision becomes float32."""
    if dtype == BF16:
        floats: np.ndarray = (rows.astype(np.uint32) << 16).view(np.float32)
        return floats
    return rows.astype(np.float32) if rows.dtype == np.float16 else rows


def smallest_dtype(rows: np.ndarray, precision: str) -> str:
    """Returns the type to keep float32 rows of a model in ``precision`` in: the smaller one where no bit is lost by
    it.
    """
    small = {"bf16": BF16, "fp16": np.dtype(np.float16).str}.get(precision)
    if small is None or rows.dtype != np.float32 or not rows.size:
        return str(rows.dtype.str)
    with np.errstate(over="ignore"):
        return small if np.array_equal(unpack(pack(rows, small), small), rows) else str(rows.dtype.str)


def write_rows(file: Path, place: int, rows: np.ndarray) -> None:
    """Puts bytes at a place of a file and flushes them; what did not fit is cut off again."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        left, at = memoryview(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data), place
        while left:
            written = os.pwrite(handle, left, at)
            left, at = left[written:], at + written
        os.fsync(handle)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, place)
        raise
    finally:
        os.close(handle)


def is_open(file: Path) -> bool:
    """Returns whether some process, this one included, has rows of a shard mapped."""
    try:
        handle = os.open(file, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)  # a file system without locks: never known to be open
    finally:
        os.close(handle)


class OpenShard:
    """A shard mapped for reading, copy on write: the file stays as it is. It counts as open while this lives."""

    def __init__(self, rows: np.ndarray, handle: int) -> None:
        self.rows = rows
        weakref.finalize(self, os.close, handle)

    @classmethod
    def open(cls, table: Table, folder: Path, shard: int) -> OpenShard:
        """Maps the file of a shard."""
        path = table.file(folder, shard)
        handle = os.open(path, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # no locks there: a shard may be evicted, and stays readable
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            shape = (table.rows_in(shard), *table.shape)
            return cls(np.memmap(path, table.disk_dtype, mode="c", shape=shape), handle)
        except BaseException:
            os.close(handle)
            raise


class StoredRows(NDArrayOperatorsMixin):
    """Rows of the store as an array gives them, by a number, a slice or an array of numbers; read when asked for.

    Any order and any subset of pictures is the same copy on disk. Half precision is read as float32.
    ``numpy.asarray`` gives all rows in memory.
    """

    def __init__(self, table: Table, shards: dict[int, OpenShard], row_N: np.ndarray) -> None:
        self._table, self._shards, self._row_N = table, shards, row_N
        self.dtype = np.dtype(np.float32) if table.dtype == BF16 or self._half else table.disk_dtype
        self.shape = (len(row_N), *table.shape)
        self.ndim = len(self.shape)

    @property
    def _half(self) -> bool:
        return self._table.disk_dtype == np.float16

    @property
    def nbytes(self) -> int:
        """Bytes of all rows in memory."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self._row_N)

    @overload
    def __getitem__(self, chosen: int | np.integer[Any]) -> np.ndarray: ...
    @overload
    def __getitem__(self, chosen: slice | np.ndarray | Sequence[int] | tuple[Any, ...]) -> np.ndarray: ...
    def __getitem__(self, chosen: Any) -> np.ndarray:
        if isinstance(chosen, tuple):  # rows, then parts of them
            found = self[chosen[0]]
            return found[chosen[1:] if found.ndim < self.ndim else (slice(None), *chosen[1:])]
        if isinstance(chosen, int | np.integer):
            row: np.ndarray = self._gather(self._row_N[[int(chosen)]])[0]
            return row
        return self._gather(self._row_N[chosen if isinstance(chosen, slice) else np.asarray(chosen)])

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[number] for number in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = self._gather(self._row_N)
        return found if dtype is None else found.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **settings: Any) -> Any:
        """Operators read all rows first."""
        arrays = [np.asarray(given) if isinstance(given, StoredRows) else given for given in inputs]
        return getattr(ufunc, method)(*arrays, **settings)

    def _gather(self, row_M: np.ndarray) -> np.ndarray:
        """New rows in memory, those of a shard together."""
        found = np.empty((len(row_M), *self._table.shape), self.dtype)
        shard_M = np.zeros(len(row_M), np.int64) if self._table.per_shard is None else row_M // self._table.per_shard
        for shard in np.unique(shard_M).tolist():
            place_M = np.flatnonzero(shard_M == shard)
            first = 0 if self._table.per_shard is None else shard * self._table.per_shard
            found[place_M] = unpack(self._shards[shard].rows[row_M[place_M] - first], self._table.dtype)
        return found


SCHEMA_VERSION = 3  # 1 had no checksums, 2 no shards
SCHEMA = """
CREATE TABLE tables (name TEXT PRIMARY KEY, label TEXT NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL,
                     count INTEGER NOT NULL, used REAL NOT NULL, per_shard INTEGER);
CREATE TABLE rows (name TEXT NOT NULL, key TEXT NOT NULL, row INTEGER NOT NULL, sum INTEGER, PRIMARY KEY (name, key))
  WITHOUT ROWID;
CREATE TABLE files (path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, key TEXT NOT NULL)
  WITHOUT ROWID;
"""
CHANGES = {  # from a version to the next one
    1: "ALTER TABLE rows ADD COLUMN sum INTEGER",
    2: "ALTER TABLE tables ADD COLUMN per_shard INTEGER",
}
KEYS_PER_QUERY = 500  # parameters of one query; old builds of SQLite allow 999


class CacheIndex:
    """``FOLDER/index.sqlite``, made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "index.sqlite"

    @contextlib.contextmanager
    def transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction: none is kept, so forks, threads and ``--empty`` cannot be hurt by it."""
        with cache_errors(self.folder):
            (self.folder / "rows").mkdir(parents=True, exist_ok=True)
            index = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            try:
                _prepare(index, self.folder)
                index.execute(f"BEGIN {kind}")
                try:
                    yield index
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back by itself (full disk)
                        index.execute("ROLLBACK")
                    raise
                index.execute("COMMIT")
            finally:
                index.close()


def look_up(index: sqlite3.Connection, query: str, keys: Sequence[str], *first: str) -> dict[str, Any]:
    """Returns the rows of a query that ends in ``IN``, for any number of keys: its first column to its second."""
    found: dict[str, Any] = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        some = keys[start : start + KEYS_PER_QUERY]
        found.update(index.execute(f"{query} ({','.join('?' * len(some))})", (*first, *some)).fetchall())
    return found


@contextlib.contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """Turns what the system says about the cache folder into one line with what to do."""
    elsewhere = "set TELLAPART_CACHE to another folder"
    try:
        yield
    except sqlite3.Error as error:
        if "full" in str(error):
            raise TellapartError(_full(folder)) from None
        if "locked" in str(error):
            raise TellapartError(f"{folder}: another process holds the cache for over a minute; {elsewhere}") from None
        if "readonly" in str(error) or "unable to open" in str(error):
            raise TellapartError(f"{folder}: the cache cannot be written ({error}); {elsewhere}") from None
        if "I/O error" in str(error):  # a limit on the size of files, a disk that fails
            raise TellapartError(f"{folder}: the cache cannot be read or written ({error}); {elsewhere}") from None
        raise TellapartError(f"{folder}: the cache is damaged ({error}); type: tellapart cache --empty") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TellapartError(_full(folder)) from None
        raise TellapartError(f"{folder}: the cache cannot be used ({error.strerror or error}); {elsewhere}") from None


def _prepare(index: sqlite3.Connection, folder: Path) -> None:
    (version,) = index.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    if version not in (0, *CHANGES):
        raise TellapartError(f"{folder}: a cache of another version of tellapart; type: tellapart cache --empty")
    index.execute("BEGIN EXCLUSIVE")
    (version,) = index.execute("PRAGMA user_version").fetchone()  # another process may have been faster
    if version == 0:
        for statement in filter(str.strip, SCHEMA.split(";")):
            index.execute(statement)
    else:
        for before in range(version, SCHEMA_VERSION):
            index.execute(CHANGES[before])
    index.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    index.execute("COMMIT")


def _full(folder: Path) -> str:
    return f"{folder}: no space left for the cache; type: tellapart cache --empty, or set TELLAPART_CACHE elsewhere"
