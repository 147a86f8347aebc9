"""``concadia:FILE``: Concadia (Kreiss et al. 2022), pictures from Wikipedia, each with a caption and a description.

``wiki_split.json``: ``{"images": [{"filename": "1.jpg", "split": "train", "caption": {"raw": "…"}, "description":
{"raw": "…"}}]}``. A description (alt text) replaces the picture; a caption supplements it. ``text=`` selects
``descriptions`` (default), ``captions``, or ``both`` (the description first). Pictures are in ``images=FOLDER``, by
default in ``resized/`` (as published) or ``images/`` next to the file. The id is the file name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tellapart.data.caption_values import clean_captions
from tellapart.data.dataset import Skipped
from tellapart.data.listed_pictures import finish_items, picture_folder
from tellapart.data.options import Options
from tellapart.data.pictures import picture_in
from tellapart.data.reader import IMAGES, READERS, Reader
from tellapart.data.row_errors import RowError
from tellapart.data.splits import normalize_split
from tellapart.data.text_files import read_images
from tellapart.errors import UsageError, nearest
from tellapart.types import Item

TEXTS = {"descriptions": ("description",), "captions": ("caption",), "both": ("description", "caption")}


def read(path: Path, options: Options) -> tuple[Sequence[Item], Skipped]:
    """Returns items in the order of the file."""
    text = options.text("text", "descriptions")
    if text not in TEXTS:
        raise UsageError(f"{options.spec}: unknown value text={text}{nearest(text, TEXTS)}")
    file = path / "wiki_split.json" if path.is_dir() else path
    content = read_images(file, "Concadia's JSON")
    home = file.parent
    folder = picture_folder(options, home / "resized", home / "images", home)
    missing, items = Skipped(), list[Item]()
    for number, image in enumerate(content["images"]):
        where = f"{file}: images[{number}]"
        try:
            items.append(_item(image, where, folder, TEXTS[text]))
        except RowError as error:  # some alt texts on the web are file names
            missing.add(error.where, error.reason)
    return finish_items(items, options, str(file), missing)


def _item(image: Any, where: str, folder: Path, texts: tuple[str, ...]) -> Item:
    if not isinstance(image, dict) or not isinstance(image.get("filename"), str):
        raise UsageError(f'{where} has no "filename"')
    if not all(isinstance(image.get(text), dict) and "raw" in image[text] for text in texts):
        raise UsageError(f'{where}: expected "caption" and "description" to be objects with "raw"')
    split = normalize_split(str(image.get("split") or ""))
    return Item(
        image["filename"],
        picture_in(folder, image["filename"]),
        clean_captions([image[text] for text in texts], where),
        split,
    )


READERS.register(
    Reader(
        name="concadia",
        factory=read,
        help="Concadia: descriptions, captions, or both",
        keys={**IMAGES, "text": "`descriptions` (default), `captions` or `both`"},
        layouts=(("Concadia", "`concadia:wiki_split.json?text=captions&split=test`"),),
        published=True,
    )
)
