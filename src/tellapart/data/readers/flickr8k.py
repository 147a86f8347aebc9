"""``flickr8k:FOLDER``: the original files of Flickr8k (Hodosh, Young and Hockenmaier, 2013); or a token file,
such as Flickr30k's ``results_20130124.token``.

``Flickr8k.token.txt`` has one caption per line, ``name.jpg#k<TAB>caption``; ``Flickr_8k.trainImages.txt``,
``…devImages.txt`` and ``…testImages.txt`` have one name per line; pictures are in ``images/`` (or
``Flicker8k_Dataset/``, as published, or ``images=FOLDER``). The id is the file name. Pictures that are not in any list
have no split. The token file lists two pictures that do not exist; they are reported. Flickr30k's pictures are in
``flickr30k-images/``, ``flickr30k_images/`` or ``images/``.
"""

from __future__ import annotations

from pathlib import Path

from tellapart.data.caption_values import clean_captions
from tellapart.data.dataset import ReadItems
from tellapart.data.listed_pictures import finish_items, picture_folder
from tellapart.data.options import Options
from tellapart.data.pictures import picture_in
from tellapart.data.reader import IMAGES, READERS, Reader
from tellapart.data.splits import read_split_lists
from tellapart.data.text_files import read_text
from tellapart.errors import UsageError
from tellapart.types import Item

TOKENS = "Flickr8k.token.txt"
PICTURE_FOLDERS = ("images", "Flicker8k_Dataset", "Flickr8k_Dataset", "flickr30k-images", "flickr30k_images")
LISTS = {
    "train": ("Flickr_8k.trainImages.txt",),
    "val": ("Flickr_8k.devImages.txt",),
    "test": ("Flickr_8k.testImages.txt",),
}


def read(path: Path, options: Options) -> ReadItems:
    """Returns items in the order of the token file, followed by pictures that only a list names (no references)."""
    home, tokens = (path.parent, path) if path.is_file() else (path, path / TOKENS)
    if not home.is_dir():
        raise UsageError(f"{path}: no such folder; flickr8k: expects the folder that contains {TOKENS}")
    if not tokens.is_file():
        raise UsageError(f"{path}: this folder has no {TOKENS}, so it does not contain Flickr8k's original files")
    captions = _captions(tokens)
    splits = read_split_lists([home], LISTS, str) if tokens.name == TOKENS else {}
    folder = picture_folder(options, *(home / name for name in PICTURE_FOLDERS))
    items = []
    for name in dict.fromkeys([*captions, *splits]):
        texts = [text for _, text in sorted(captions.get(name, {}).items())]
        references = clean_captions(texts, f"{tokens}: {name}")
        items.append(Item(name, picture_in(folder, name), references, splits.get(name, "")))
    return finish_items(items, options, str(path))


def _captions(path: Path) -> dict[str, dict[int, str]]:
    """Returns the captions by file name and number k."""
    captions: dict[str, dict[int, str]] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        label, tab, caption = line.partition("\t")
        name, _, k = label.rpartition("#")
        if not tab or not name or not k.isdecimal():
            raise UsageError(f"{path}, line {number}: expected 'name.jpg#0<TAB>caption', got {line[:40]!r}")
        if int(k) in captions.setdefault(name, {}):
            raise UsageError(f"{path}, line {number}: {label} occurs more than once")
        captions[name][int(k)] = caption
    return captions


READERS.register(
    Reader(
        name="flickr8k",
        factory=read,
        help="folder with Flickr8k's original files",
        keys=IMAGES,
        layouts=(
            ("Flickr8k's original files", "`flickr8k:FOLDER?split=test`"),
            ("Flickr30k's token file", "`results_20130124.token?images=flickr30k-images`"),
        ),
        suffixes=(".token",),
        published=True,
    )
)
