"""``parquet:FILES``: Parquet, one picture per row (extra ``parquet``).

FILES is a file, a folder, or a pattern such as ``train-*.parquet`` or ``part-{0..9}.parquet``. The picture column
contains bytes, ``{"bytes", "path"}`` as Hugging Face writes it, or a path or URL whose file is in ``images=FOLDER`` (by
default next to the Parquet file). Columns are recognized or specified as for ``csv:`` (`tellapart.data.columns`). The
split is in a ``split`` column or, without one, inferred from the file name. The default id is the path or, if the file
contains the pictures, ``FILE#ROW`` (counting from 0). Row groups are read in small batches. Damaged files are reported
and skipped.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from tellapart.data.columns import COLUMN_KEYS, Columns
from tellapart.data.dataset import Skipped
from tellapart.data.encoded_pictures import is_base64
from tellapart.data.file_patterns import expand_pattern, files_below
from tellapart.data.listed_pictures import missing_reason, picture_folder
from tellapart.data.options import Options
from tellapart.data.picture_cells import cell_bytes, not_a_picture
from tellapart.data.picture_tables import TEXT_ROWS, PictureTables
from tellapart.data.pictures import PackedClip, PackedPicture, StoredPicture, signature_of
from tellapart.data.reader import READERS, Reader
from tellapart.data.splits import split_from_name
from tellapart.errors import MissingExtra, PictureError, UsageError, first_line
from tellapart.types import Item
from tellapart.utils.listed_names import few

PICTURE_ROWS = 16  # rows per batch with pictures
CLIP_COLUMNS = ("video", "clip", "gif")


def read(path: Path, options: Options) -> tuple[Sequence[Item], Skipped]:
    """Returns items ordered by file and row. Raises a `UsageError` that lists the available columns."""
    _pyarrow()
    if path.is_dir():
        files = files_below(path, "**/*.parquet")
        if not files:
            raise UsageError(f"{path}: no *.parquet files in this folder or its subfolders")
    else:
        files = expand_pattern(path)
    schema = _first_schema(files)
    columns = Columns.choose(schema.names, options)
    packed = _holds_bytes(files, schema, columns.image, options)
    tables = ParquetTables(files, str(path), columns, picture_folder(options, files[0].parent), packed=packed)
    return tables.items(options)


def holds_pictures(files: Sequence[Path], options: Options) -> bool:
    """Returns whether the files contain the pictures themselves, rather than their paths. Raises `UsageError`."""
    schema = _first_schema(files)
    return _holds_bytes(files, schema, Columns.choose(schema.names, options).image, options)


class ParquetTables(PictureTables):
    """Rows of several Parquet files."""

    def __init__(self, files: Sequence[Path], name: str, columns: Columns, folder: Path, *, packed: bool) -> None:
        super().__init__(name, columns, folder, [split_from_name(file.name) for file in files], packed=packed)
        self._files = files

    def contents(self, part: int, missing: Skipped) -> Iterator[dict[str, Any]]:
        """See `PictureTables`."""
        file = self._files[part]
        if reason := missing_reason(file):
            missing.add(str(file), reason)
            return
        try:
            rows = cursor(file, self.text_columns, TEXT_ROWS)
            yield from (rows[row] for row in range(len(rows)))
        except PictureError as error:
            missing.add_error(str(file), error)

    def content(self, part: int, row: int) -> dict[str, Any]:
        """See `PictureTables`."""
        return cursor(self._files[part], self.text_columns, TEXT_ROWS)[row]

    def picture(self, part: int, row: int) -> tuple[StoredPicture, str]:
        """See `PictureTables`."""
        file, column = self._files[part], self.columns.image
        kind = ParquetClip if column.lower() in CLIP_COLUMNS else ParquetPicture
        return kind(file, column, row, self.folder), f"{file.stem}#{row}"

    def where(self, part: int, row: int) -> str:
        """See `PictureTables`."""
        return f"{self._files[part]}, row {row}"


class ParquetPicture(PackedPicture):
    """The picture of one row. Reading rows in order decodes each batch only once."""

    __slots__ = ("_column", "_folder", "_row")

    def __init__(self, path: Path, column: str, row: int, folder: Path) -> None:
        super().__init__(path, str(row))
        self._column, self._row, self._folder = column, row, folder

    def data(self) -> bytes:
        """See `PackedPicture`."""
        return cell_bytes(
            cursor(self._path, (self._column,), PICTURE_ROWS)[self._row][self._column], self._folder, self.name
        )


class ParquetClip(PackedClip, ParquetPicture):
    """The clip of one row."""

    __slots__ = ()


class Cursor:
    """Rows of one file by number, as dicts. Keeps one batch in memory, so ascending access is fast. Thread-safe."""

    def __init__(self, path: Path, file: Any, columns: tuple[str, ...], size: int) -> None:
        self._path, self._file, self._columns, self._size = path, file, list(columns), size
        self._lock = threading.Lock()
        names = self._file.schema_arrow.names
        for column in columns:
            if column not in names:
                raise UsageError(f"{path}: no column '{column}'; available columns: {', '.join(names)}")
        found = self._file.metadata
        self._bounds = [0]  # the first row of every row group, and the end
        for group in range(found.num_row_groups):
            self._bounds.append(self._bounds[-1] + found.row_group(group).num_rows)
        self._group, self._start, self._rows = -1, 0, list[dict[str, Any]]()
        self._batches: Iterator[Any] = iter(())

    def __len__(self) -> int:
        return self._bounds[-1]

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Returns a row. Raises `PictureError` if the file is damaged."""
        if not self._columns:
            return {}
        with self._lock, _damage_is_a_picture_error(self._path):
            if not self._start <= number < self._start + len(self._rows):
                self._seek(number)
            return self._rows[number - self._start]

    def _seek(self, number: int) -> None:
        group = bisect_right(self._bounds, number) - 1
        if group != self._group or number < self._start:
            self._batches = self._file.iter_batches(self._size, row_groups=[group], columns=self._columns)
            self._group, self._start, self._rows = group, self._bounds[group], []
        while number >= self._start + len(self._rows):
            self._start += len(self._rows)
            self._rows = next(self._batches).to_pylist()


def cursor(path: Path, columns: tuple[str, ...], size: int) -> Cursor:
    """Returns a cursor over the current version of the file. Keeps the last few cursors open."""
    return _cursor(path, columns, size, signature_of(path, str(path)))


@lru_cache(maxsize=8)
def _cursor(path: Path, columns: tuple[str, ...], size: int, signature: tuple[int, int]) -> Cursor:
    with _damage_is_a_picture_error(path):
        file = _pyarrow().parquet.ParquetFile(path, buffer_size=1 << 16)
    return Cursor(path, file, columns, size)


@contextmanager
def _damage_is_a_picture_error(path: Path) -> Iterator[None]:
    arrow = _pyarrow()
    try:
        yield
    except (arrow.ArrowException, OSError, StopIteration) as error:
        raise PictureError(f"{path}: damaged, or not a Parquet file ({first_line(error)})") from None


def _first_schema(files: Sequence[Path]) -> Any:
    """Returns the schema of the first undamaged file. Raises `UsageError` if all are damaged."""
    reasons = []
    for file in files:
        if reason := missing_reason(file):
            reasons.append(f"{file}: {reason}")
            continue
        try:
            with _damage_is_a_picture_error(file):
                return _pyarrow().parquet.read_schema(file)
        except PictureError as error:
            reasons.append(str(error))
    raise UsageError(few(reasons, 1))


def _holds_bytes(files: Sequence[Path], schema: Any, column: str, options: Options) -> bool:
    """Returns whether the column contains pictures rather than paths. Raises `UsageError` if it contains neither."""
    types = _pyarrow().types
    kind = schema.field(column).type
    while (
        types.is_dictionary(kind) or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    ):
        kind = kind.value_type
    if types.is_struct(kind) and max(map(kind.get_field_index, ("bytes", "path"))) >= 0:
        return True
    if types.is_binary(kind) or types.is_large_binary(kind):
        return True
    if types.is_string(kind) or types.is_large_string(kind):
        return _first_is_base64(files, column)
    raise not_a_picture(str(kind), column, options.spec, schema.names)


def _first_is_base64(files: Sequence[Path], column: str) -> bool:
    """Returns whether the first value of a text column is a picture in base64."""
    for file in files:
        with contextlib.suppress(PictureError):
            rows = cursor(file, (column,), PICTURE_ROWS)
            cells = (rows[number][column] for number in range(len(rows)))
            if first := next(filter(None, cells), None):
                return is_base64(first[0] if isinstance(first, list) else first)
    return False


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
