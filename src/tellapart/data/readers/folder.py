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
import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from tellapart.data.caption_files import METADATA_FILES, read_metadata
from tellapart.data.caption_values import clean_captions
from tellapart.data.dataset import Skipped
from tellapart.data.decode import NO_HEIC, PICTURE_SUFFIXES, UNSUPPORTED_SUFFIXES
from tellapart.data.dropped import drop
from tellapart.data.file_patterns import files_below, is_hidden, natural_key
from tellapart.data.listed_pictures import PARTIAL_SUFFIXES, existing_items, missing_reason
from tellapart.data.options import Options
from tellapart.data.path_ids import path_id
from tellapart.data.pictures import picture_file
from tellapart.data.reader import READERS, Reader
from tellapart.data.record_keys import DATA_KEYS, MAY_LACK
from tellapart.data.sidecars import lines_in, say_passed_over, say_unread, sidecars, texts_beside, without_foreign
from tellapart.data.text_files import read_text
from tellapart.data.video import CLIP_SUFFIXES
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.messages import say

TEXT_SUFFIXES = (".txt", ".caption")  # suffixes of text files next to pictures; the first one that exists is read
WANTED = PICTURE_SUFFIXES | CLIP_SUFFIXES
# Text that downloaders append to a picture's name: a.jpg?w=300, a.jpg.1, a.jpg:large, a.jpg (1), a.jpg~
MORE_AFTER_SUFFIX = re.compile(
    rf".+?\.({'|'.join(sorted(suffix[1:] for suffix in WANTED))})([?&;:@!~ _].*|\.\d+)", re.IGNORECASE
)


def read(path: Path, options: Options) -> tuple[Sequence[Item], Skipped]:
    """Returns the items of the pictures below ``path``, or of a single picture if ``path`` is a file."""
    if options.splits:
        raise UsageError(f"{options.spec}: a folder has no splits; remove split={options.text('split')}")
    if (lines := options.text("lines")) not in ("", "references", "one"):
        raise UsageError(
            f"{options.spec}: lines={lines}: expected references (each line is a caption) or one "
            "(the whole text is a caption)"
        )
    missing = Skipped()
    if path.is_file() and (suffix := path.suffix.lower()) in UNSUPPORTED_SUFFIXES:
        missing.add(str(path), _unread(suffix))
        return [], missing
    if path.is_file():
        neighbours = [file.name for file in files_below(path.parent, "*") if file.suffix.lower() in TEXT_SUFFIXES]
        beside = sidecars([path.name], neighbours, TEXT_SUFFIXES)
        return existing_items(_items(path.parent, [path.name], beside, lines, {}, missing), missing), missing
    if not path.is_dir():
        raise UsageError(f"{path}: no such folder")
    pictures, texts, lists = _walk(path, missing)
    names, listed = sorted(pictures, key=natural_key), _metadata(path) if lists else {}
    beside = sidecars(names, texts, TEXT_SUFFIXES)
    used = {_stem(name) for name in (*names, *beside.values())}
    alone = [text for text in sorted(texts, key=natural_key) if _stem(text) not in used]
    say_unread(path, alone if beside else without_foreign(alone))
    say_passed_over(path, texts, beside.values())
    for archive in () if pictures else sorted(path.rglob("*.zip")):
        missing.add(str(archive), f"an archive; run: unzip -d {shlex.quote(str(path))} {shlex.quote(str(archive))}")
    for name in sorted(listed.keys() - {_composed(name) for name in pictures}):
        missing.add(str(path / name), missing_reason(path / name) or "not a supported picture format")
    return existing_items(_items(path, names, beside, lines, listed, missing), missing), missing


def _walk(root: Path, missing: Skipped) -> tuple[list[str], set[str], bool]:
    """Returns the paths of pictures and text files in ``root``, with forward slashes, and whether there is metadata."""
    pictures: list[str] = []
    texts: set[str] = set()
    lists = False

    def unreadable(error: OSError) -> None:
        missing.add(str(error.filename), f"cannot read the folder: {error.strerror}")

    for folder, below, files in os.walk(root, onerror=unreadable):
        below[:] = [name for name in below if not is_hidden(Path(name))]
        inside = Path(folder).relative_to(root)
        for file in files:
            suffix = Path(file).suffix.lower()
            name = (inside / file).as_posix()
            lists = lists or file in METADATA_FILES
            if file.startswith("."):
                continue
            if suffix in WANTED:
                pictures.append(name)
            elif suffix in TEXT_SUFFIXES:
                texts.add(name)
            elif suffix in UNSUPPORTED_SUFFIXES:
                missing.add(str(root / name), _unread(suffix))
            elif suffix in PARTIAL_SUFFIXES and Path(_stem(file)).suffix.lower() in WANTED:
                missing.add(str(root / name), "incomplete download")
            elif named := MORE_AFTER_SUFFIX.fullmatch(file):
                missing.add(str(root / name), f"the name does not end in .{named[1]}; rename it")
    return pictures, texts, lists


def _unread(suffix: str) -> str:
    instead = NO_HEIC if suffix.startswith((".he", ".hif")) else "convert it to JPEG or PNG"
    return f"{suffix[1:].upper()} is not supported: {instead}"


def _stem(name: str) -> str:
    return name[: -len(Path(name).suffix)]


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


def _texts(folder: Path, beside: Mapping[str, str], unread: Skipped) -> dict[str, tuple[Path, str]]:
    """Returns the texts next to pictures, by the picture's name. Adds files that cannot be read to ``unread``."""
    texts = {}
    for name, text in beside.items():
        file = folder / text
        try:
            texts[name] = file, read_text(file)
        except UsageError as error:
            unread.add(str(file), str(error).partition(": ")[2])
    return texts


def _items(
    folder: Path, names: Sequence[str], beside: Mapping[str, str], lines: str,
    listed: Mapping[str, Sequence[str]], missing: Skipped,
) -> list[Item]:  # fmt: skip
    """Returns the pictures with their references from text files (``beside``) or, failing that, lists (``listed``).

    Prints which text files cannot be read, because their pictures then have no references.
    """
    unread = Skipped()
    texts = _texts(folder, beside, unread)
    if texts and not lines:
        lines = lines_in(text for _, text in texts.values())
    items: dict[str, Item] = {}
    for name in names:
        # caf%E9.jpg can be the real name, or the encoding of a name that is not valid UTF-8
        if (id_ := path_id(name)) in items:
            missing.add(str(folder / name), f"same id as {items[id_].picture.name}: '{id_}'; rename one of them")
            continue
        references = clean_captions(list(listed.get(_composed(name), ())), str(folder / name))
        if name in texts:
            file, text = texts[name]
            try:
                references = clean_captions(texts_beside(text, lines) or [""], str(file))
            except UsageError as error:
                unread.add(str(file), str(error).partition(": ")[2])
        items[id_] = Item(id=id_, picture=picture_file(folder / name), references=references)
    if line := unread.line(len(beside), what="text files next to pictures cannot be read and are ignored"):
        say(line)
    return list(items.values())


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
