"""``tgif:FILE``: TGIF (Li et al. 2016), animated GIFs with one to three sentences each.

``tgif-v1.0.tsv`` has one ``URL<TAB>sentence`` per line. The GIFs are named after the last part of their URL. They are
in ``images=FOLDER``, by default in ``gifs/`` or ``images/`` next to the file, or in ``gifs/`` next to its folder.
Splits are lists of URLs, ``train.txt``, ``val.txt`` and ``test.txt``, in ``splits/`` or next to the file. The id is the
GIF's file name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tellapart.data.caption_values import clean_captions
from tellapart.data.dataset import ReadItems
from tellapart.data.downloaded_pictures import url_file_name
from tellapart.data.line_source import Lines, LineSource
from tellapart.data.listed_pictures import picture_folder
from tellapart.data.options import Options
from tellapart.data.pictures import picture_in
from tellapart.data.reader import IMAGES, READERS, Reader
from tellapart.data.row_index import RowPosition
from tellapart.data.splits import read_split_lists
from tellapart.errors import UsageError
from tellapart.types import Item

LISTS = {split: (f"{split}.txt",) for split in ("train", "val", "test")}


def read(path: Path, options: Options) -> ReadItems:
    """Returns items in the order in which the file first names them."""
    home = path.parent
    folder = picture_folder(options, home / "gifs", home / "images", home.parent / "gifs", home)
    splits = read_split_lists([home / "splits", home.parent / "splits", home], LISTS, url_file_name)
    return Tgif(path, folder, splits).items(options, merge=True)


class Tgif(LineSource):
    """Rows with a URL and a sentence."""

    def __init__(self, path: Path, folder: Path, splits: Mapping[str, str]) -> None:
        super().__init__(path)
        self._folder, self._splits = folder, splits

    def records(self, lines: Lines) -> Iterator[str | None]:
        """Yields the lines, skipping blank ones."""
        return (line.strip() or None for line in lines)

    def item(self, row: str, place: RowPosition) -> Item:
        """See `RowSource`."""
        url, tab, sentence = row.partition("\t")
        name, where = url_file_name(url), self.where(place)
        if not tab or not name:
            raise UsageError(f"{where}: expected 'https://….gif<TAB>sentence', got {row[:40]!r}")
        captions = clean_captions(sentence, where)
        return Item(name, picture_in(self._folder, name), captions, self._splits.get(name, ""))


READERS.register(
    Reader(
        name="tgif",
        factory=read,
        help="TGIF's animated GIFs",
        keys=IMAGES,
        layouts=(("TGIF: the TSV and a folder of GIFs", "`tgif:tgif-v1.0.tsv?images=gifs`"),),
        published=True,
    )
)
