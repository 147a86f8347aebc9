"""The feature store: features of frozen encoders and decoded pixels on disk, so that every picture is encoded once.

    store = FeatureStore()
    items = store.readable(dataset, encoder, skipped=dataset.unreadable)   # encodes what is not there yet
    features_ND = store.features(items, encoder)                           # rows in the order of the items

The key of a row is the encoder's fingerprint (weights and preprocessing) and a hash of the picture's content: a renamed
or copied file is not encoded again, a changed one is. A file with the same path, size and modification time is not read
again. Of a clip, `Encoder.frames` frames are encoded and joined to one row, whose key includes their number.
`docs/cache.md` describes the cache; `tellapart.features.row_store` is the format on disk.

`Filling` is the pass that encodes what is missing. Each file is opened at most once, and decoded only where its row is
missing and nobody else is making it: rows are claimed (`Claims`) before they are decoded, and what another process is
making is waited for at the end. Where that process dies, its pictures are made here. `EncodedRows` carries rows to the
store of another machine.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.data.pictures import FilePicture, StoredPicture, is_clip, sample_frames
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.features.row_store import RowStore, StoredRows, TableUse, row_bytes, smallest_dtype
from tellapart.types import Encoder, Item, Picture
from tellapart.utils.messages import Progress, detail, say

if TYPE_CHECKING:
    from PIL import Image

    from tellapart.data import Skipped

__all__ = ["FeatureStore", "RowMaker", "StoredRows", "encoder_rows"]

BATCH = 64
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
        import torch

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
