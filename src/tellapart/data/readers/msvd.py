"""``msvd:FILE`` or ``msvd:FOLDER``: MSVD, Microsoft's corpus of video descriptions (Chen and Dolan 2011).

``AllVideoDescriptions.txt`` has one ``NAME description`` per line (``#`` begins a comment). The corpus as CSV has the
columns ``VideoID``, ``Start``, ``End``, ``Language`` and ``Description``; its clips are named ``VideoID_Start_End``,
and its descriptions are in English unless another language is specified, such as ``language=German``. Clips
(``NAME.avi``, also mp4, webm, gif) are in ``images=FOLDER``, by default in ``YouTubeClips/`` or ``videos/`` next to the
file, or in the file's folder. Splits come from lists of names, ``train_list.txt``, ``val_list.txt`` and
``test_list.txt``, otherwise from ``youtube_mapping.txt`` (``NAME vid1``): the first 1,200 are train, the next 100 val,
the others test. The id is the name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tellapart.data.caption_values import clean_captions
from tellapart.data.csv_text import csv_records
from tellapart.data.dataset import ReadItems
from tellapart.data.line_source import Lines, LineSource, open_lines
from tellapart.data.listed_pictures import first_clip, picture_folder
from tellapart.data.options import Options
from tellapart.data.reader import IMAGES, READERS, Reader
from tellapart.data.row_index import RowPosition
from tellapart.data.splits import read_split_lists
from tellapart.data.text_files import read_text, usage_errors
from tellapart.errors import UsageError
from tellapart.types import Item

TEXT = "AllVideoDescriptions.txt"
TRIED_SUFFIXES = (".avi", ".mp4", ".webm", ".gif")
LISTS = {split: (f"{split}_list.txt", f"{split}list.txt", f"{split}.txt") for split in ("train", "val", "test")}
NEEDED = ("VideoID", "Start", "End", "Description")
TRAIN, VALIDATION = 1200, 100  # as in Venugopalan et al. 2015; in the order of youtube_mapping.txt


def read(path: Path, options: Options) -> ReadItems:
    """Returns items in the order in which the file first names them."""
    if path.is_dir():
        path = next(iter([*path.glob(TEXT), *sorted(path.glob("*.csv"))]), path / TEXT)
    return Msvd(path, options).items(options, merge=True)


class Msvd(LineSource):
    """Rows with a clip's name and a description."""

    def __init__(self, path: Path, options: Options) -> None:
        """Raises `UsageError` if a column is missing."""
        home, is_table = path.parent, path.suffix.lower() == ".csv"
        super().__init__(path, header=is_table)
        self._names: list[str] = []
        if is_table:
            with usage_errors(path), open_lines(path) as file:
                self._names = next(csv_records(Lines(file, path), ","), [])
            for name in NEEDED:
                if name not in self._names:
                    there = ", ".join(self._names) or "none"
                    raise UsageError(f"{path}: no column '{name}'; available columns: {there}")
        self._folder = picture_folder(options, home / "YouTubeClips", home / "videos", home)
        splits = read_split_lists([home, home / "splits"], LISTS, _stem)
        self._splits = splits or _by_mapping(home / "youtube_mapping.txt")
        self._language = options.text("language", "English").casefold()

    def records(self, lines: Lines) -> Iterator[tuple[str, str] | None]:
        """Yields (name, description), or None for comments, blank lines and other languages."""
        return map(self._row, csv_records(lines, ",")) if self._names else map(self._line, lines)

    def item(self, row: tuple[str, str], place: RowPosition) -> Item:
        """See `RowSource`."""
        (name, description), where = row, self.where(place)
        if not description.strip():
            raise UsageError(f"{where}: expected 'NAME description', got {name[:40]!r}")
        paths = [self._folder / (name + suffix) for suffix in TRIED_SUFFIXES]
        return Item(name, first_clip(paths), clean_captions(description, where), self._splits.get(name, ""))

    def _line(self, line: str) -> tuple[str, str] | None:
        name, _, description = line.strip().partition(" ")
        return None if not name or name.startswith("#") else (name, description)

    def _row(self, record: list[str]) -> tuple[str, str] | None:
        row = dict(zip(self._names, record, strict=False))
        description = row.get("Description", "").strip()
        if not description or row.get("Language", "English").casefold() != self._language:
            return None  # the corpus has rows without a description
        return f"{row['VideoID']}_{row['Start']}_{row['End']}", description


def _stem(name: str) -> str:
    return name.removesuffix(Path(name).suffix) if Path(name).suffix.lower() in TRIED_SUFFIXES else name


def _by_mapping(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    splits = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        name, _, mapped = line.strip().partition(" ")
        if not name:
            continue
        if not mapped.startswith("vid") or not mapped[3:].isdecimal():
            raise UsageError(f"{path}, line {number}: expected 'NAME vid1', got {line[:40]!r}")
        place = int(mapped[3:])
        splits[name] = "train" if place <= TRAIN else "val" if place <= TRAIN + VALIDATION else "test"
    return splits


READERS.register(
    Reader(
        name="msvd",
        factory=read,
        help="MSVD's clips",
        keys={**IMAGES, "language": "language of the descriptions in the CSV; default: `English`"},
        layouts=(
            (
                "MSVD: `AllVideoDescriptions.txt` or the corpus as CSV, and a folder of clips",
                "`msvd:MSVD?images=YouTubeClips`",
            ),
        ),
        published=True,
    )
)
