"""``conceptual:FILE``: Conceptual Captions (Sharma et al. 2018; Changpinyo et al. 2021), with the downloaded pictures.

``Train_GCC-training.tsv`` and ``Validation_GCC-1.1.0-Validation.tsv`` have one ``caption<TAB>URL`` per line and no
header; ``cc12m.tsv`` has the reverse order. Pictures are in ``images=FOLDER``, by default in ``images/``, ``training/``
or ``train/`` (``validation/``, ``val/``) next to the file, named as in `tellapart.data.downloaded_pictures`. The split
is inferred from the file name. The id is the picture's path in its folder. URLs whose file is missing, empty or
incomplete are counted in ``Dataset.missing``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tellapart.data.caption_values import clean_captions
from tellapart.data.csv_text import csv_records
from tellapart.data.dataset import ReadItems
from tellapart.data.downloaded_pictures import DownloadedPictures
from tellapart.data.line_source import Lines, LineSource
from tellapart.data.listed_pictures import picture_folder
from tellapart.data.options import Options
from tellapart.data.reader import IMAGES, READERS, Reader
from tellapart.data.row_index import RowPosition
from tellapart.data.skipped import Skipped
from tellapart.data.splits import split_from_name
from tellapart.errors import UsageError
from tellapart.types import Item

SPLIT_FOLDERS = {"train": ("training", "train"), "val": ("validation", "val"), "test": ("test",)}


def read(path: Path, options: Options) -> ReadItems:
    """Returns items in the order of the file."""
    split = split_from_name(path.name)
    named = [path.parent / name for name in ("images", *SPLIT_FOLDERS.get(split, ()))]
    source = Conceptual(path, picture_folder(options, *named, path.parent), split)
    return source.items(options, merge=True)


class Conceptual(LineSource):
    """Rows with a caption and a URL. Infers the naming scheme of downloaded files from the first rows."""

    def __init__(self, path: Path, folder: Path, split: str) -> None:
        super().__init__(path)
        self._split, self._files = split, DownloadedPictures(folder)
        rows = ((self._pair(record, place)[1], place[1] - 1) for place, record in self.rows(Skipped()))
        self._files.learn(rows)

    def records(self, lines: Lines) -> Iterator[list[str] | None]:
        """Yields fields, parsed as in the download programs, because downloaded files are named after row numbers."""
        return (record or None for record in csv_records(lines, "\t", lenient=True))

    def item(self, row: list[str], place: RowPosition) -> Item:
        """See `RowSource`."""
        where = self.where(place)
        caption, url = self._pair(row, place)
        picture, id_ = self._files.picture(url, place[1] - 1, where)
        return Item(id_, picture, clean_captions(caption, where), self._split)

    def _pair(self, row: list[str], place: RowPosition) -> tuple[str, str]:
        """Returns (caption, URL), which can be in either order in the row."""
        if len(row) == 2:
            first, second = (field.strip() for field in row)
            if "://" in second[:12]:
                return first, second
            if "://" in first[:12]:
                return second, first
        raise UsageError(f"{self.where(place)}: expected 'caption<TAB>https://…', got {chr(9).join(row)[:40]!r}")


READERS.register(
    Reader(
        name="conceptual",
        factory=read,
        help="Conceptual Captions: a TSV and a folder of the downloaded pictures",
        keys=IMAGES,
        layouts=(
            (
                "Conceptual Captions, 3M and 12M: a TSV and a folder of the downloaded pictures",
                "`conceptual:Train_GCC-training.tsv?images=training`",
            ),
        ),
        published=True,
    )
)
