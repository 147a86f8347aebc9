"""Opens the captions of a folder in the layout in which they are stored, which may be read-only (Parquet, Excel)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tellapart.captions.journal import Journal
from tellapart.captions.layout import CaptionLayout, TextPlace
from tellapart.captions.list_layout import ListFile
from tellapart.captions.sidecar_layout import BESIDE, Sidecars
from tellapart.data.caption_files import METADATA_FILES, read_caption_file
from tellapart.data.caption_matching import KnownIds, match_captions
from tellapart.data.file_patterns import files_below
from tellapart.data.pictures import FilePicture
from tellapart.data.text_files import plain_suffix
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.messages import say_once
from tellapart.utils.urls import is_url

LISTS = ("captions.jsonl", "captions.csv", *METADATA_FILES)  # possible names of the list in a folder


class ReadOnly(CaptionLayout):
    """Captions in a read-only layout: Parquet, JSON, Excel."""

    writable = False

    def __init__(self, path: Path, texts: Mapping[str, str]) -> None:
        self.path, self.name, self._texts = path, path.name, texts

    @classmethod
    def open(cls, path: Path, items: Sequence[Item]) -> ReadOnly:
        """Reads the file. Raises `UsageError` if it cannot be read."""
        known = KnownIds.of("the pictures", items)
        texts = match_captions(read_caption_file(path), known, str(path)).texts
        return cls(path, {id_: "\n".join(each) for id_, each in texts.items()})

    def place(self, id_: str) -> TextPlace:
        return TextPlace(self.path.parent, self.path.name, id_)

    def read(self, ids: Sequence[str]) -> dict[str, str]:
        return {id_: self._texts[id_] for id_ in ids if id_ in self._texts}

    def write(self, raws: Mapping[str, str | None], states: Mapping[str, Mapping[str, Any]]) -> None:
        raise UsageError(f"{self.path} is read-only; convert it to .jsonl or .csv to change captions")


def _had_texts(items: Sequence[Item]) -> bool:
    """Returns whether tellapart has written ``.txt`` files beside any of these pictures, which must be files."""
    folders = {item.picture.path.parent for item in items if isinstance(item.picture, FilePicture)}
    return any(Journal.open(folder, "*.txt").rows.get("*.txt") for folder in folders)


def open_layout(items: Sequence[Item], folder: Path | None, captions: Path | None) -> CaptionLayout:
    """Opens these pictures' captions, regardless of the layout that they are stored in.

    Args:
        folder: the folder to search for lists if ``captions`` is None.
        captions: a file, or a suffix such as ``.txt`` for files next to the pictures; None detects the layout.

    Files next to the pictures take precedence over a list in the folder. Raises `UsageError` if there are several lists
    or the kind of file is unknown.
    """
    if captions is not None and str(captions).lower() in (*BESIDE, ".xmp"):
        suffix = str(captions).lower()
        return Sidecars.find(items, (suffix,))
    if captions is not None:
        if is_url(str(captions)) or captions.is_dir():
            raise UsageError(f"{captions}: expected a local file of captions, such as captions.jsonl")
        if plain_suffix(captions) in (".jsonl", ".ndjson", ".csv", ".tsv") and captions.suffix.lower() != ".gz":
            return ListFile(captions, items)
        if not captions.exists():
            raise UsageError(
                f"{captions}: no such file; expected a .jsonl or .csv file, or .txt for a text file beside each picture"
            )
        return ReadOnly.open(captions, items)
    lists = [path for name in LISTS for path in (files_below(folder, name) if folder is not None else ())]
    beside = Sidecars.find(items, BESIDE) if all(isinstance(item.picture, FilePicture) for item in items) else None
    if beside is not None and (not lists or beside.present):
        if lists:
            say_once(
                f"{folder}: using the {' and '.join(beside.present)} files beside the pictures, and ignoring "
                f"{', '.join(map(str, lists))}; to use a list instead, pass it after the folder (review) or with "
                "--captions (captions)"
            )
        return beside
    if len(lists) > 1:
        names = ", ".join(map(str, lists))
        raise UsageError(f"{folder} contains several caption files; specify one of them: {names}")
    if lists:
        if beside is not None and _had_texts(items):
            say_once(
                f"{folder}: using {lists[0]}, because no text files are left beside the pictures; for the history of "
                "the text files, pass .txt after the folder (review) or with --captions (captions)"
            )
        return open_layout(items, folder, lists[0])
    raise UsageError("specify a caption file after the pictures, such as captions.jsonl")
