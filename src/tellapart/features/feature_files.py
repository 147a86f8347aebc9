"""Reads features that another program wrote, from a folder with one file per picture or from one HDF5 file.

Files are ``ID.npz`` (bottom-up attention: the array is named ``x``, ``feat`` or ``features``, or is the only one) or
``ID.npy``, where ``ID`` is the item's id. HDF5 files, ``.h5`` or ``.hdf5`` (extra ``regions``), contain one data set
per picture, named ``ID``, ``ID_features`` or ``ID/features``. An array has shape D, or P×D for P regions; the number of
regions can vary. Ids are looked up unchanged first, then without a suffix such as ``.jpg``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.errors import MissingExtra, UsageError, first_line
from tellapart.types import Item

ARRAY_NAMES = ("x", "feat", "features")  # common names of region features
HDF5 = (".h5", ".hdf5", ".hdf")
FOLDER = "clip-features"
FROM_PICKLE = (  # ClipCap's format: "clip_embedding" has the rows, and each caption's "clip_embedding" is a row index
    """python -c 'import numpy, pickle, sys; d = pickle.load(open(sys.argv[1], "rb")); """
    """[numpy.save(sys.argv[2] + "/" + str(c["image_id"]), d["clip_embedding"][c["clip_embedding"]].float().numpy()) """
    """for c in d["captions"]]'"""
)


class NumpyFolder:
    """A folder with one NumPy file per picture, looked up by name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> np.ndarray:
        file = self.place(name)
        assert file is not None
        try:
            loaded = np.load(file)  # never unpickle: object arrays raise an error
            return loaded if isinstance(loaded, np.ndarray) else self._chosen(file, loaded)
        except UsageError:
            raise
        except Exception as error:  # NumPy and zipfile raise almost any error for damaged bytes
            raise UsageError(f"cannot read {file} as a numpy file: {' '.join(str(error).split())[:120]}") from None

    def _chosen(self, file: Path, arrays: Any) -> np.ndarray:
        """Selects the array in an archive that contains the features."""
        with arrays:
            named = [key for key in arrays.files if key in ARRAY_NAMES] or arrays.files
            if len(named) != 1:
                raise UsageError(
                    f"{file} contains {', '.join(arrays.files) or 'nothing'}; expected features under one of "
                    f"{', '.join(ARRAY_NAMES)}"
                )
            return np.asarray(arrays[named[0]])

    def place(self, name: str) -> Path | None:
        """Returns the file with a picture's features, or None if there is none."""
        files = (self.path / f"{name}{suffix}" for suffix in (".npz", ".npy"))
        return next((file for file in files if file.is_file()), None)


class Hdf5File:
    """An HDF5 file with the features of all pictures. It stays open."""

    def __init__(self, file: Any) -> None:
        self.file = file

    @classmethod
    def open(cls, path: Path) -> Hdf5File:
        """Opens a file. Raises `UsageError` if it is not HDF5, and `MissingExtra` if h5py is not installed."""
        try:
            import h5py
        except ImportError:
            raise MissingExtra("regions", f"reading {path}") from None
        try:
            return cls(h5py.File(path, "r"))
        except OSError as error:
            raise UsageError(f"{path} is not an HDF5 file ({first_line(error)[:120]})") from None

    def read(self, name: str) -> np.ndarray:
        return np.asarray(self.file[self.place(name)][()])

    def place(self, name: str) -> str | None:
        """Returns the path in the file of a picture's features, or None if there is none."""
        for place in (name, f"{name}_features", f"{name}/features"):
            if hasattr(self.file.get(place), "shape"):  # a data set, not a group
                return place
        return None


class FeatureFiles:
    """The features in a folder or an HDF5 file. Create it with `open`."""

    def __init__(self, path: Path, source: NumpyFolder | Hdf5File, equal: bool = False) -> None:
        self.path, self.source, self._equal = path, source, equal
        self._first: tuple[str, tuple[int, ...]] | None = None  # name and shape of the first array read

    @classmethod
    def open(cls, path: str | Path, equal: bool = False) -> FeatureFiles:
        """Opens the features at a path. Raises `UsageError` if the path does not contain features.

        ``equal``: whether every picture must have the same number of regions as the first one read.
        """
        place = Path(path).expanduser()
        if not place.exists():
            raise UsageError(f"features {path} do not exist; expected a folder of .npz or .npy files, or an .h5 file")
        if place.suffix.lower() in (".pkl", ".pickle"):  # written by ClipCap's code
            raise UsageError(
                f"{path} is a pickle, which can execute code when loaded, so it is not supported; if you trust "
                f"it, run: mkdir {FOLDER}; {FROM_PICKLE} {path} {FOLDER}; then NAME?features={FOLDER}"
            )
        if place.is_file() and place.suffix not in HDF5:
            raise UsageError(
                f"{path}: expected a folder of .npz or .npy files, or one file with the suffix .h5 or .hdf5"
            )
        return cls(place, NumpyFolder(place) if place.is_dir() else Hdf5File.open(place), equal)

    def name_of(self, item: Item) -> str | None:
        """Returns the name of an item's features: its id, the id without its suffix, or the bare file name.

        Returns None if the item has no features.
        """
        path = Path(item.id)
        names = dict.fromkeys((item.id, str(path.with_suffix("")) if path.name else item.id, path.stem))
        return next((name for name in names if self.source.place(name) is not None), None)

    def names_of(self, items: Sequence[Item]) -> list[str | None]:
        """Returns the names of the items' features. Raises `UsageError` if two pictures share the same features."""
        names = [self.name_of(item) for item in items]
        owner: dict[str, str] = {}
        for item, name in zip(items, names, strict=True):
            if name is not None and owner.setdefault(name, item.id) != item.id:
                raise UsageError(
                    f"{self.path}: {owner[name]} and {item.id} would share the features '{name}'; store features "
                    "under the items' ids, including folders"
                )
        return names

    def width(self, items: Iterable[Item]) -> int:
        """Returns D for the first item that has features. Raises `UsageError` if no item has features."""
        for item in items:
            if (name := self.name_of(item)) is not None:
                return int(self.read(name).shape[-1])
        raise UsageError(f"{self.path} has no features for any of the pictures; expected them under the items' ids")

    def read(self, name: str, width: int | None = None) -> np.ndarray:
        """Reads features as a float32 array, D or P×D.

        Raises `UsageError` if the array has another shape or width, or contains non-finite values.
        """
        array = np.asarray(self.source.read(name))
        if array.dtype.kind not in "fiu" or array.ndim not in (1, 2) or not array.size:
            raise UsageError(f"{self.path}: {name} is {array.dtype} {array.shape}; expected numbers, D or regions × D")
        if width is not None and array.shape[-1] != width:
            raise UsageError(
                f"{self.path}: {name} has {array.shape[-1]} numbers per region, but the captioner expects {width}"
            )
        if not np.isfinite(array).all():
            raise UsageError(f"{self.path}: {name} contains NaN or infinity; expected finite numbers")
        first, shape = self._first = self._first or (name, array.shape)
        if self._equal and array.shape != shape:
            raise UsageError(
                f"{self.path}: {first} has shape {shape} but {name} has {array.shape}, and this captioner "
                "requires the same number of regions for every picture; use equal shapes, or a captioner of kind "
                "'recurrent'"
            )
        return array.astype(np.float32, copy=False)

    def rows(self, items: Sequence[Item], width: int | None = None) -> FeatureRows:
        """Returns the items' features, which are read on access.

        Raises `UsageError` if an item has no features; the message names the first such item.
        """
        names = self.names_of(items)
        if bare := [item.id for item, name in zip(items, names, strict=True) if name is None]:
            raise UsageError(
                f"{self.path} has no features for {len(bare):,} of {len(items):,} pictures (first: {bare[0]}); "
                "expected them under the items' ids, with or without the suffix"
            )
        rows = FeatureRows(self, [name for name in names if name is not None], width)
        rows[:1]  # so that a wrong width fails now, not in the middle of training
        return rows


class FeatureRows:
    """Array-like access to rows of `FeatureFiles` by a slice or an index array.

    Returns float32 blocks, N×D or, for regions, N×P×D, zero-padded to the maximum number of regions in the block.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, files: FeatureFiles, names: Sequence[str], width: int | None) -> None:
        self.files, self.names, self.width = files, names, width

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, places: slice | np.ndarray, /) -> np.ndarray:
        chosen = range(len(self))[places] if isinstance(places, slice) else places
        rows = [self.files.read(self.names[place], self.width) for place in chosen]
        if all(row.ndim == 1 for row in rows):
            return np.stack(rows) if rows else np.zeros((0, self.width or 0), np.float32)
        grids = [np.atleast_2d(row) for row in rows]
        block = np.zeros((len(grids), max(len(grid) for grid in grids), grids[0].shape[1]), np.float32)
        for n, grid in enumerate(grids):
            block[n, : len(grid)] = grid
        return block
