"""``folder:PATH``: the pictures and clips in a folder and its subfolders.

Items are ordered by path, with numbers compared by value (``2.jpg`` before ``10.jpg``). An item's id is its path inside
the folder; paths that are not valid UTF-8 are percent-encoded (``caf%E9.jpg``). References, if any, are the lines of
the text file with the same name (``cat.txt`` or ``cat.jpg.txt``, otherwise ``cat.caption``), or the whole text if its
lines are prose (`tellapart.data.sidecars.is_prose`; ``lines=`` overrides this). Without text files, references come
from Hugging Face's ``metadata.jsonl`` or ``metadata.csv`` (``{"file_name": "cat.jpg", "text": "a cat"}``) in the folder
and its subfolders. Skips hidden files and folders. Reports text files and rows without a picture, unsupported picture
formats (HEIC, SVG, …), names that continue after the suffix (``cat.jpg?w=300``), empty files and incomplete downloads
(``.part``).
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path

from tellapart.data.caption_files import METADATA_FILES, read_metadata
from tellapart.data.caption_values import clean_captions
from tellapart.data.dataset import ReadItems
from tellapart.data.decode import NO_HEIC
from tellapart.data.dropped import drop
from tellapart.data.file_names import READABLE_SUFFIXES, UNSUPPORTED_SUFFIXES
from tellapart.data.file_patterns import files_below, is_hidden, natural_key
from tellapart.data.listed_pictures import PARTIAL_SUFFIXES, existing_items, missing_reason
from tellapart.data.options import Options
from tellapart.data.path_ids import path_id
from tellapart.data.pictures import picture_file
from tellapart.data.reader import READERS, Reader
from tellapart.data.record_keys import DATA_KEYS, MAY_LACK
from tellapart.data.sidecars import lines_in, say_ignored, sidecars, texts_beside
from tellapart.data.skipped import Skipped
from tellapart.data.text_files import read_text
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.messages import say

TEXT_SUFFIXES = (".txt", ".caption")  # suffixes of text files next to pictures; the first one that exists is read
# Text that downloaders append to a picture's name: a.jpg?w=300, a.jpg.1, a.jpg:large, a.jpg (1), a.jpg~
MORE_AFTER_SUFFIX = re.compile(
    rf".+?\.({'|'.join(sorted(suffix[1:] for suffix in READABLE_SUFFIXES))})([?&;:@!~ _].*|\.\d+)", re.IGNORECASE
)


def read(path: Path, options: Options) -> ReadItems:
    """Returns the items of the pictures below ``path``, or of a single picture if ``path`` is a file."""
    if options.splits:
        raise UsageError(f"{options.spec}: a folder has no splits; remove split={options.text('split')}")
    if (lines := options.text("lines")) not in ("", "references", "one"):
        raise UsageError(
            f"{options.spec}: lines={lines}: expected references (each line is a caption) or one "
            "(the whole text is a caption)"
        )
    if not path.exists():
        raise UsageError(f"{path}: no such folder")
    missing, listed = Skipped(), dict[str, list[str]]()
    if path.is_file():
        root, inside = path.parent, [path.name]
        texts = [file.name for file in files_below(root, "*") if file.suffix.lower() in TEXT_SUFFIXES]
    else:
        root, inside = path, list(_files(path, missing))
        texts = [name for name in inside if name.lower().endswith(TEXT_SUFFIXES)]
        if any(posixpath.basename(name) in METADATA_FILES for name in inside):
            listed = _metadata(path)
    if path.is_file() and path.suffix.lower() not in UNSUPPORTED_SUFFIXES:  # a named file may have any other suffix
        pictures = inside
    else:
        pictures = sorted((name for name in inside if _is_picture(root / name, missing)), key=natural_key)
    beside = sidecars(pictures, texts, TEXT_SUFFIXES)
    if path.is_dir():
        say_ignored(path, texts, beside.values())
        for archive in () if pictures else sorted(path.rglob("*.zip")):
            missing.add(str(archive), f"an archive; run: unzip -d {shlex.quote(str(path))} {shlex.quote(str(archive))}")
    for name in sorted(listed.keys() - {_composed(name) for name in pictures}):
        missing.add(str(path / name), missing_reason(path / name) or "not a supported picture format")
    references = _references(root, beside, lines)
    items: dict[str, Item] = {}
    for name in pictures:
        # caf%E9.jpg can be the real name, or the encoding of a name that is not valid UTF-8
        if (id_ := path_id(name)) in items:
            missing.add(str(root / name), f"same id as {items[id_].picture.name}: '{id_}'; rename one of them")
            continue
        if name not in references:
            references[name] = clean_captions(listed.get(_composed(name)), str(root / name))
        items[id_] = Item(id_, picture_file(root / name), references[name])
    return existing_items(items.values(), missing), missing


def _files(root: Path, missing: Skipped) -> Iterator[str]:
    """Yields the paths in ``root`` of files that are not hidden, with forward slashes. Reports unreadable folders."""

    def unreadable(error: OSError) -> None:
        missing.add(str(error.filename), f"cannot read the folder: {error.strerror}")

    for folder, below, files in os.walk(root, onerror=unreadable):
        below[:] = [name for name in below if not is_hidden(Path(name))]
        inside = Path(folder).relative_to(root)
        yield from ((inside / file).as_posix() for file in files if not file.startswith("."))


def _is_picture(file: Path, missing: Skipped) -> bool:
    """Returns whether a file is a picture or clip by its name. Adds a name that almost is one to ``missing``."""
    suffix = file.suffix.lower()
    if suffix in READABLE_SUFFIXES or suffix in TEXT_SUFFIXES:
        return suffix in READABLE_SUFFIXES
    if suffix in UNSUPPORTED_SUFFIXES:
        instead = NO_HEIC if suffix.startswith((".he", ".hif")) else "convert it to JPEG or PNG"
        missing.add(str(file), f"{suffix[1:].upper()} is not supported: {instead}")
    elif suffix in PARTIAL_SUFFIXES and Path(file.stem).suffix.lower() in READABLE_SUFFIXES:
        missing.add(str(file), "incomplete download")
    elif named := MORE_AFTER_SUFFIX.fullmatch(file.name):
        missing.add(str(file), f"the name does not end in .{named[1]}; rename it")
    return False


def _metadata(folder: Path) -> dict[str, list[str]]:
    """Returns the texts in the Hugging Face metadata files of a folder and its subfolders, by picture path."""
    listed: dict[str, list[str]] = {}
    for entry in read_metadata(folder, (*DATA_KEYS, MAY_LACK)):
        listed.setdefault(_composed(entry.file), []).extend(text.text for text in entry.texts if not text.flag)
        for text in entry.texts:
            if text.flag:
                drop(text.flag, entry.file)
    return listed


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _references(root: Path, beside: Mapping[str, str], lines: str) -> dict[str, tuple[str, ...]]:
    """Returns the references in the text files next to pictures, by the picture's name.

    Prints which text files cannot be read, because their pictures then have no references.
    """
    unread, texts, references = Skipped(), dict[str, str](), dict[str, tuple[str, ...]]()

    def report(name: str, error: UsageError) -> None:
        unread.add(str(root / beside[name]), str(error).partition(": ")[2])

    for name, file in beside.items():
        try:
            texts[name] = read_text(root / file)
        except UsageError as error:
            report(name, error)
    lines = lines or lines_in(texts.values())
    for name, text in texts.items():
        try:
            references[name] = clean_captions(texts_beside(text, lines) or [""], str(root / beside[name]))
        except UsageError as error:
            report(name, error)
    if line := unread.line(len(beside), what="text files next to pictures cannot be read and are ignored"):
        say(line)
    return references


READERS.register(
    Reader(
        name="folder",
        factory=read,
        help="pictures in a folder and its subfolders",
        keys={
            "lines": (
                "for a `.txt` next to a picture: `references` (each line is a caption) or `one` (the "
                "whole text is a caption)"
            )
        },
        layouts=(
            (
                (
                    "a folder of pictures and clips; captions, if any, in a `.txt` or else a "
                    "`.caption` next to each picture, one per line (or a single caption, if the lines "
                    "form prose); names that are not valid UTF-8 are percent-encoded in the id "
                    "(`caf%E9.jpg`)"
                ),
                "`photos/` or `folder:photos`",
            ),
            ("one picture or clip", "`cat.jpg`, `dog.mp4`"),
            (
                ("Hugging Face's image folder with `metadata.jsonl` or `metadata.csv`, one in total or one per folder"),
                "the folder",
            ),
        ),
    )
)
