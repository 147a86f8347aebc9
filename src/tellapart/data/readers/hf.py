"""``hf:FOLDER`` or ``hf:NAME``: a data set from the ``datasets`` library (extra ``datasets``).

FOLDER was written by ``save_to_disk`` (one data set, or several by split). NAME is a name on the hub, with
``config=NAME`` if it has several configurations; offline, it must be in the cache. Columns are recognized as for
``csv:`` (`tellapart.data.columns`), and by the types ``Image`` and ``Video``; paths are relative to ``images=FOLDER``,
by default to the folder. Splits come from the data set, otherwise from a ``split`` column. The default id is
``SPLIT/ROW``, counted from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tellapart.data.columns import COLUMN_KEYS, Columns, PictureLocator, cell_bytes, not_a_picture
from tellapart.data.dataset import Skipped
from tellapart.data.encoded_pictures import is_base64
from tellapart.data.listed_pictures import picture_folder
from tellapart.data.pictures import PackedClip, PackedPicture, StoredPicture
from tellapart.data.reader import READERS, Reader
from tellapart.data.row_errors import RowError
from tellapart.data.row_index import RowPosition, stream_items
from tellapart.data.selection import Options, normalize_split
from tellapart.errors import MissingExtra, PictureError, UsageError, first_line
from tellapart.types import Item

PART = 1 << 40  # position = part · PART + row
ROWS_PER_BATCH = 1024
LOOKED_AT = 2000  # rows used to infer the naming scheme of downloaded files
PICTURES, CLIPS = ("Image",), ("Video",)


def read(path: Path, options: Options) -> tuple[Sequence[Item], Skipped]:
    """Returns items ordered by split and row. Raises a `UsageError` that lists the available columns."""
    parts = _parts(_load(path, options))
    wanted = {name: part for name, part in parts.items() if normalize_split(name) in options.splits}
    saved = SavedParts(wanted or parts, picture_folder(options, path), options)
    saved.learn()
    return stream_items(saved, options, merge=not saved.packed)


class SavedParts:
    """Rows of a data set's splits, as a `RowSource`. ``packed``: the data set contains the pictures themselves."""

    def __init__(self, parts: dict[str, Any], folder: Path, options: Options) -> None:
        self.name = options.spec
        features = next(iter(parts.values())).features
        typed = [name for name, feature in features.items() if type(_inner(feature)).__name__ in PICTURES + CLIPS]
        self._columns = Columns.choose(list(features), options, image=typed[0] if typed else "")
        image = self._columns.image
        kind = _inner(features[image])
        dtype = getattr(kind, "dtype", "")
        self.packed = (
            image in typed or dtype in ("binary", "large_binary") or (isinstance(kind, dict) and "bytes" in kind)
        )
        if not self.packed and dtype in ("string", "large_string"):
            rows = next(iter(parts.values())).with_format("arrow").select_columns([image])
            values = (value for row in range(len(rows)) for value in rows[row].to_pylist()[0].values() if value)
            first = next(values, "")
            self.packed = is_base64(first[0] if isinstance(first, list) else first)
        elif not self.packed:
            raise not_a_picture(str(kind), image, options.spec, list(features))
        self._clips = type(kind).__name__ in CLIPS
        self._folder, self._where = folder, PictureLocator(folder)
        self._splits = list(parts)
        # In Arrow format, pictures stay encoded, and only the requested rows are copied.
        raw = [part.with_format("arrow") for part in parts.values()]
        self._pictures = [part.select_columns([image]) for part in raw]
        texts = list(dict.fromkeys([*self._columns.texts(), *(() if self.packed else (image,))]))
        self._texts = [part.select_columns(texts or [image]) for part in raw]

    def learn(self) -> None:
        """Infers the naming scheme of downloaded files from the first rows."""
        if not self.packed:
            image, some = self._columns.image, islice(self._rows(), LOOKED_AT)
            self._where.learn((row[image], place[1] - 1) for place, row in some)

    def scan(self, missing: Skipped) -> Iterator[tuple[RowPosition, Item]]:
        """See `RowSource`."""
        for place, row in self._rows():
            try:
                item = self._item(place, row)
            except RowError as error:
                missing.add(error.where, error.reason)
                continue
            yield place, item

    def read(self, places: Iterable[RowPosition]) -> Iterator[Item]:
        """See `RowSource`."""
        for place in places:
            yield self._item(place, self._texts[place[0] // PART][place[0] % PART].to_pylist()[0])

    def _rows(self) -> Iterator[tuple[RowPosition, dict[str, Any]]]:
        number = 0
        for part, texts in enumerate(self._texts):
            if self.packed and not self._columns.texts():  # counts rows without reading the pictures
                yield from (((part * PART + row, row + 1), {}) for row in range(len(texts)))
                continue
            for row, content in enumerate(self._contents(texts)):
                number += 1
                yield (part * PART + row, number), content

    def _contents(self, texts: Any) -> Iterator[dict[str, Any]]:
        """Yields rows as dicts, read in batches. Raises `UsageError` if the files are damaged."""
        batches = iter(texts.iter(ROWS_PER_BATCH))
        while True:
            try:
                rows = next(batches).to_pylist()
            except StopIteration:
                return
            except Exception as error:  # Arrow raises almost any error for damaged files, even SystemError
                raise UsageError(f"{self.name}: damaged ({first_line(error)})") from None
            yield from rows

    def _item(self, place: RowPosition, content: dict[str, Any]) -> Item:
        part, row = divmod(place[0], PART)
        where, split = f"{self.name}, {self._splits[part]}, row {row}", self._splits[part]
        picture: StoredPicture
        if self.packed:
            kind = SavedClip if self._clips else SavedPicture
            picture, name = kind(self._pictures[part], f"{split}/{row}", self._folder), f"{split}/{row}"
        else:
            picture, name = self._where.picture(content[self._columns.image], place[1] - 1, where)
        split_of = self._columns.split_of(content, normalize_split(split) if split != ALONE else "")
        return Item(self._columns.id_of(content, name), picture, self._columns.references(content, where), split_of)


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
        except Exception as error:  # see `SavedParts._contents`
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
