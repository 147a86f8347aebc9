"""``concadia:FILE``: Concadia (Kreiss et al. 2022), pictures from Wikipedia, each with a caption and a description.

``wiki_split.json``: ``{"images": [{"filename": "1.jpg", "split": "train", "caption": {"raw": "…"}, "description":
{"raw": "…"}}]}``. A description (alt text) replaces the picture; a caption supplements it. ``text=`` selects
``descriptions`` (default), ``captions``, or ``both`` (the description first). Pictures are in ``images=FOLDER``, by
default in ``resized/`` (as published) or ``images/`` next to the file. The id is the file name.
"""

from __future__ import annotations

from pathlib import Path

from tellapart.data.caption_values import clean_captions
from tellapart.data.dataset import ReadItems
from tellapart.data.image_lists import read_images
from tellapart.data.listed_pictures import finish_items, picture_folder
from tellapart.data.options import Options
from tellapart.data.pictures import picture_in
from tellapart.data.reader import IMAGES, READERS, Reader
from tellapart.data.row_errors import RowError
from tellapart.data.skipped import Skipped
from tellapart.data.splits import normalize_split
from tellapart.errors import UsageError, nearest
from tellapart.types import Item

TEXTS = {"descriptions": ("description",), "captions": ("caption",), "both": ("description", "caption")}


def read(path: Path, options: Options) -> ReadItems:
    """Returns items in the order of the file."""
    text = options.text("text", "descriptions")
    if text not in TEXTS:
        raise UsageError(f"{options.spec}: unknown value text={text}{nearest(text, TEXTS)}")
    file = path / "wiki_split.json" if path.is_dir() else path
    folder = picture_folder(options, file.parent / "resized", file.parent / "images", file.parent)
    missing, items = Skipped(), list[Item]()
    for number, image in enumerate(read_images(file, "Concadia's JSON", "filename")["images"]):
        where, name, texts = f"{file}: images[{number}]", image["filename"], [image.get(key) for key in TEXTS[text]]
        if not all(isinstance(one, dict) and "raw" in one for one in texts):
            raise UsageError(f'{where}: expected "caption" and "description" to be objects with "raw"')
        try:
            references = clean_captions(texts, where)
        except RowError as error:  # some alt texts on the web are file names
            missing.add(error.where, error.reason)
            continue
        items.append(Item(name, picture_in(folder, name), references, normalize_split(str(image.get("split") or ""))))
    return finish_items(items, options, str(file), missing)


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
