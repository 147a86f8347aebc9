"""``parquet:FILES``: Parquet, one picture per row (extra ``parquet``).

FILES is a file, a folder, or a pattern such as ``train-*.parquet`` or ``part-{0..9}.parquet``. The picture column
contains bytes, ``{"bytes", "path"}`` as Hugging Face writes it, or a path or URL whose file is in ``images=FOLDER`` (by
default next to the Parquet file). Columns are recognized or specified as for ``csv:`` (`tellapart.data.columns`). The
split is in a ``split`` column or, without one, inferred from the file name. The default id is the path or, if the file
contains the pictures, ``FILE#ROW`` (counting from 0). Row groups are read in small batches. Damaged files are reported
and skipped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from tellapart.data.columns import COLUMN_KEYS, Columns
from tellapart.data.dataset import ReadItems
from tellapart.data.file_patterns import expand_pattern, files_below
from tellapart.data.listed_pictures import missing_reason, picture_folder
from tellapart.data.options import Options
from tellapart.data.picture_tables import PICTURE_ROWS, TEXT_ROWS, BatchedRows, PictureTables, TablePart
from tellapart.data.reader import READERS, Reader
from tellapart.data.splits import split_from_name
from tellapart.errors import MissingExtra, PictureError, UsageError, first_line
from tellapart.utils.listed_names import few

CLIP_COLUMNS = ("video", "clip", "gif")


def read(path: Path, options: Options) -> ReadItems:
    """Returns items ordered by file and row. Raises a `UsageError` that lists the available columns."""
    _pyarrow()
    files = files_below(path, "**/*.parquet") if path.is_dir() else expand_pattern(path)
    if not files:
        raise UsageError(f"{path}: no *.parquet files in this folder or its subfolders")
    return ParquetTables(files, str(path), options).read(options)


def holds_pictures(files: Sequence[Path], options: Options) -> bool:
    """Returns whether the files contain the pictures themselves, rather than their paths. Raises `UsageError`."""
    return ParquetTables(files, options.spec, options).packed


class ParquetTables(PictureTables):
    """Rows of several Parquet files with the columns of the first undamaged one."""

    def __init__(self, files: Sequence[Path], name: str, options: Options) -> None:
        schema = _first_schema(files)
        columns = Columns.choose(schema.names, options)
        parts = [TablePart(file, str(file), split_from_name(file.name), f"{file.stem}#") for file in files]
        folder, clips = picture_folder(options, files[0].parent), columns.image.lower() in CLIP_COLUMNS
        super().__init__(name, parts, schema, columns, folder, clips=clips)

    def texts(self, part: int) -> BatchedRows:
        """See `PictureTables`."""
        return cursor(self.parts[part].path, self.text_columns, TEXT_ROWS)

    def cells(self, part: int) -> BatchedRows:
        """See `PictureTables`."""
        return cursor(self.parts[part].path, (self.columns.image,), PICTURE_ROWS)


class Cursor(BatchedRows):
    """Rows of one file. Reads the batches of a row group in order, beginning again only for an earlier row."""

    def __init__(self, path: Path, file: Any, columns: tuple[str, ...], size: int) -> None:
        super().__init__(file.metadata.num_rows)
        self._path, self._file, self._columns, self._size = path, file, list(columns), size
        self.schema = file.schema_arrow
        for column in columns:
            if column not in self.schema.names:
                raise UsageError(f"{path}: no column '{column}'; available columns: {', '.join(self.schema.names)}")
        counts = (file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
        self._bounds = list(accumulate(counts, initial=0))  # the first row of every row group, and the end
        self._group, self._next = -1, 0
        self._batches: Iterator[Any] = iter(())

    def _batch(self, number: int) -> tuple[int, list[dict[str, Any]]]:
        if not self._columns:
            return number, [{}]
        with _damage_is_a_picture_error(self._path):
            group = bisect_right(self._bounds, number) - 1
            if group != self._group or number < self._next:
                self._batches = self._file.iter_batches(self._size, row_groups=[group], columns=self._columns)
                self._group, self._next = group, self._bounds[group]
            while True:
                batch = next(self._batches)
                start, self._next = self._next, self._next + len(batch)
                if number < self._next:
                    return start, batch.to_pylist()


def cursor(path: Path, columns: tuple[str, ...], size: int) -> Cursor:
    """Returns a cursor over the current version of the file. Keeps the last few cursors open. Raises `PictureError`."""
    with suppress(OSError):
        status = path.stat()
        if status.st_size:
            return _cursor(path, columns, size, (status.st_size, status.st_mtime_ns))
    raise PictureError(f"{path}: {missing_reason(path)}")


@lru_cache(maxsize=8)
def _cursor(path: Path, columns: tuple[str, ...], size: int, signature: tuple[int, int]) -> Cursor:
    with _damage_is_a_picture_error(path):
        file = _pyarrow().parquet.ParquetFile(path, buffer_size=1 << 16)
    return Cursor(path, file, columns, size)


@contextmanager
def _damage_is_a_picture_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (_pyarrow().ArrowException, OSError, StopIteration) as error:
        raise PictureError(f"{path}: damaged, or not a Parquet file ({first_line(error)})") from None


def _first_schema(files: Sequence[Path]) -> Any:
    """Returns the schema of the first undamaged file. Raises `UsageError` if all are damaged."""
    reasons = []
    for file in files:
        try:
            return cursor(file, (), TEXT_ROWS).schema
        except PictureError as error:
            reasons.append(str(error))
    raise UsageError(few(reasons, 1))


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtra("parquet", "reading Parquet") from None
    return pyarrow


READERS.register(
    Reader(
        name="parquet",
        factory=read,
        help="Parquet: pictures, paths or URLs in a column",
        keys=COLUMN_KEYS,
        needs=("parquet",),
        layouts=(
            (
                'Parquet: bytes, `{"bytes", "path"}`, paths or URLs in a column',
                "`data.parquet`, `'parquet:train-*.parquet'`, `parquet:folder`",
            ),
        ),
        suffixes=(".parquet",),
        folder_suffixes=(".parquet",),
    )
)
