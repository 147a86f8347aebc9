"""``hf:FOLDER`` or ``hf:NAME``: a data set from the ``datasets`` library (extra ``datasets``).

FOLDER was written by ``save_to_disk`` (one data set, or one per split). NAME is a name on the hub, with
``config=NAME`` if it has several configurations; offline, it must be in the cache. Columns are recognized as for
``csv:`` (`tellapart.data.columns`), and by the types ``Image`` and ``Video``; paths are relative to ``images=FOLDER``,
by default to the folder. Splits come from the data set or, if it has none, from a ``split`` column. The default id is
``SPLIT/ROW``, counted from 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tellapart.data.columns import COLUMN_KEYS, Columns
from tellapart.data.dataset import ReadItems
from tellapart.data.listed_pictures import picture_folder
from tellapart.data.options import Options
from tellapart.data.picture_tables import PICTURE_ROWS, TEXT_ROWS, BatchedRows, PictureTables, TablePart
from tellapart.data.reader import READERS, Reader
from tellapart.data.splits import normalize_split
from tellapart.errors import MissingExtra, PictureError, UsageError, first_line

PICTURE, CLIP = "Image", "Video"
ALONE = "rows"  # name of the single part of a data set without splits


def read(path: Path, options: Options) -> ReadItems:
    """Returns items ordered by split and row. Raises a `UsageError` that lists the available columns."""
    splits = _splits(_load(path, options))
    requested = {name: rows for name, rows in splits.items() if normalize_split(name) in options.splits}
    return SavedTables(requested or splits, picture_folder(options, path), options).read(options)


class SavedTables(PictureTables):
    """Rows of a data set's splits."""

    def __init__(self, splits: dict[str, Any], folder: Path, options: Options) -> None:
        features = next(iter(splits.values())).features
        kinds = {name: _kind(feature) for name, feature in features.items()}
        typed = next((name for name, kind in kinds.items() if kind in (PICTURE, CLIP)), "")
        columns = Columns.choose(list(features), options, image=typed)
        parts = []
        for name, rows in splits.items():
            path = Path(rows.cache_files[0]["filename"]) if rows.cache_files else folder
            split = normalize_split(name) if name != ALONE else ""
            parts.append(TablePart(path, f"{options.spec}, {name}", split, f"{name}/", f"{name}/"))
        # Set first, because `PictureTables.__init__` calls `cells` to look for pictures in base64.
        self._cells = [SavedRows(rows, [columns.image], PICTURE_ROWS) for rows in splits.values()]
        clips = kinds[columns.image] == CLIP
        super().__init__(options.spec, parts, features.arrow_schema, columns, folder, clips=clips)
        self._texts = [SavedRows(rows, list(self.text_columns), TEXT_ROWS) for rows in splits.values()]

    def texts(self, part: int) -> BatchedRows:
        """See `PictureTables`."""
        return self._texts[part]

    def cells(self, part: int) -> BatchedRows:
        """See `PictureTables`."""
        return self._cells[part]


class SavedRows(BatchedRows):
    """Some columns of a split. Pictures stay encoded. Reads rows in batches if they are requested in order."""

    def __init__(self, rows: Any, columns: list[str], size: int) -> None:
        super().__init__(len(rows))
        self._table, self._columns, self._size = rows.with_format("arrow").select_columns(columns), columns, size

    def __reduce__(self) -> tuple[type[SavedRows], tuple[Any, list[str], int]]:
        """Returns what pickle needs to create the rows in another process, without the lock and the current batch."""
        return type(self), (self._table, self._columns, self._size)

    def _batch(self, number: int) -> tuple[int, list[dict[str, Any]]]:
        if not self._columns:
            return number, [{}]
        size = self._size if number in (0, self._start + len(self._rows)) else 1
        try:
            return number, self._table[number : number + size].to_pylist()
        except Exception as error:  # Arrow raises almost any error for damaged files, even SystemError
            raise PictureError(f"damaged ({first_line(error)})") from None


def _kind(feature: Any) -> str:
    """Returns the name of a column's type, or of the type of the elements for a column of lists."""
    while not isinstance(feature, dict) and getattr(feature, "feature", None) is not None:
        feature = feature.feature
    return type(feature).__name__


def _splits(found: Any) -> dict[str, Any]:
    splits = dict(found) if isinstance(found, dict) else {str(found.split or ALONE): found}
    return {name: rows for name, rows in splits.items() if len(rows)} or splits


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
