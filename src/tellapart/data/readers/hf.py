"""``hf:FOLDER`` or ``hf:NAME``: a data set from the ``datasets`` library (extra ``datasets``).

FOLDER was written by ``save_to_disk`` (one data set, or one per split). NAME is a name on the hub, with
``config=NAME`` if it has several configurations; offline, it must be in the cache. Columns are recognized as for
``csv:`` (`tellapart.data.columns`), and by the types ``Image`` and ``Video``; paths are relative to ``images=FOLDER``,
by default to the folder. Splits come from the data set or, if it has none, from a ``split`` column. The default id is
``SPLIT/ROW``, counted from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tellapart.data.columns import COLUMN_KEYS, Columns
from tellapart.data.dataset import Skipped
from tellapart.data.encoded_pictures import is_base64
from tellapart.data.listed_pictures import picture_folder
from tellapart.data.options import Options
from tellapart.data.picture_cells import cell_bytes, not_a_picture
from tellapart.data.picture_tables import TEXT_ROWS, PictureTables
from tellapart.data.pictures import PackedClip, PackedPicture, StoredPicture
from tellapart.data.reader import READERS, Reader
from tellapart.data.splits import normalize_split
from tellapart.errors import MissingExtra, PictureError, UsageError, first_line
from tellapart.types import Item

PICTURES, CLIPS = ("Image",), ("Video",)


def read(path: Path, options: Options) -> tuple[Sequence[Item], Skipped]:
    """Returns items ordered by split and row. Raises a `UsageError` that lists the available columns."""
    parts = _parts(_load(path, options))
    wanted = {name: part for name, part in parts.items() if normalize_split(name) in options.splits}
    return SavedParts(wanted or parts, picture_folder(options, path), options).items(options)


class SavedParts(PictureTables):
    """Rows of a data set's splits."""

    def __init__(self, parts: dict[str, Any], folder: Path, options: Options) -> None:
        features = next(iter(parts.values())).features
        typed = [name for name, feature in features.items() if type(_inner(feature)).__name__ in PICTURES + CLIPS]
        columns = Columns.choose(list(features), options, image=typed[0] if typed else "")
        # In Arrow format, pictures stay encoded, and only the requested rows are copied.
        raw = [part.with_format("arrow") for part in parts.values()]
        self._pictures = [part.select_columns([columns.image]) for part in raw]
        kind = _inner(features[columns.image])
        packed = columns.image in typed or _holds_bytes(kind, self._pictures[0], columns.image, options, list(features))
        splits = [normalize_split(name) if name != ALONE else "" for name in parts]
        super().__init__(options.spec, columns, folder, splits, packed=packed)
        self._clips, self._names = type(kind).__name__ in CLIPS, list(parts)
        self._texts = [part.select_columns(list(self.text_columns) or [columns.image]) for part in raw]

    def contents(self, part: int, missing: Skipped) -> Iterator[dict[str, Any]]:
        """See `PictureTables`. Reads in batches. Raises `UsageError` if the files are damaged."""
        texts = self._texts[part]
        if not self.text_columns:  # counts rows without reading the pictures
            yield from ({} for _ in range(len(texts)))
            return
        batches = iter(texts.iter(TEXT_ROWS))
        while True:
            try:
                rows = next(batches).to_pylist()
            except StopIteration:
                return
            except Exception as error:  # Arrow raises almost any error for damaged files, even SystemError
                raise UsageError(f"{self.name}: damaged ({first_line(error)})") from None
            yield from rows

    def content(self, part: int, row: int) -> dict[str, Any]:
        """See `PictureTables`."""
        content: dict[str, Any] = self._texts[part][row].to_pylist()[0]
        return content

    def picture(self, part: int, row: int) -> tuple[StoredPicture, str]:
        """See `PictureTables`."""
        name = f"{self._names[part]}/{row}"
        return (SavedClip if self._clips else SavedPicture)(self._pictures[part], name, self.folder), name

    def where(self, part: int, row: int) -> str:
        """See `PictureTables`."""
        return f"{self.name}, {self._names[part]}, row {row}"


def _holds_bytes(kind: Any, part: Any, column: str, options: Options, names: list[str]) -> bool:
    """Returns whether a column contains pictures rather than paths. Raises `UsageError` if it contains neither."""
    dtype = getattr(kind, "dtype", "")
    if dtype in ("binary", "large_binary") or (isinstance(kind, dict) and "bytes" in kind):
        return True
    if dtype not in ("string", "large_string"):
        raise not_a_picture(str(kind), column, options.spec, names)
    values = (value for row in range(len(part)) for value in part[row].to_pylist()[0].values() if value)
    first = next(values, "")
    return is_base64(first[0] if isinstance(first, list) else first)


def _inner(feature: Any) -> Any:
    """Returns a column's type, or the type of the elements for a column of lists."""
    while not isinstance(feature, dict) and getattr(feature, "feature", None) is not None:
        feature = feature.feature
    return feature


class SavedPicture(PackedPicture):
    """The picture of one row."""

    __slots__ = ("_folder", "_part")

    def __init__(self, part: Any, inside: str, folder: Path) -> None:
        files = part.cache_files
        super().__init__(Path(files[0]["filename"]) if files else folder, inside)
        self._part, self._folder = part, folder

    def data(self) -> bytes:
        """See `PackedPicture`."""
        row = int(self.inside.rpartition("/")[2])
        try:
            [value] = self._part[row].to_pylist()[0].values()
        except Exception as error:  # see `SavedParts.contents`
            raise PictureError(f"{self.name}: damaged ({first_line(error)})") from None
        return cell_bytes(value, self._folder, self.name)


class SavedClip(PackedClip, SavedPicture):
    """The clip of one row."""

    __slots__ = ()


ALONE = "rows"  # name of the single part of a data set without splits


def _parts(found: Any) -> dict[str, Any]:
    parts = dict(found) if isinstance(found, dict) else {str(found.split or ALONE): found}
    return {name: part for name, part in parts.items() if len(part)} or parts


def _load(path: Path, options: Options) -> Any:
    try:
        import datasets
    except ModuleNotFoundError:
        raise MissingExtra("datasets", "reading Hugging Face data sets") from None
    try:
        if path.is_dir():
            return datasets.load_from_disk(str(path))
        return datasets.load_dataset(str(path), options.text("config") or None)
    except Exception as error:  # the library raises almost any error for a bad folder or a lost connection
        expected = (
            "a folder written by save_to_disk" if path.is_dir() else "a dataset name on the hub (offline: a cached one)"
        )
        raise UsageError(f"{options.spec}: cannot be loaded ({first_line(error)}); expected {expected}") from None


READERS.register(
    Reader(
        name="hf",
        factory=read,
        help="Hugging Face datasets: a folder written by save_to_disk, or a name on the hub",
        keys={**COLUMN_KEYS, "config": "configuration, if the dataset has several"},
        needs=("datasets",),
        layouts=(
            (
                "Hugging Face `datasets`: a folder written by `save_to_disk`, or a name on the hub",
                "`saved/`, `hf:saved`, `hf:org/name?split=test`",
            ),
        ),
        folder_markers=("dataset_dict.json", "state.json"),  # written by `save_to_disk`
    )
)
