"""``karpathy:FILE``: Karpathy's JSON with splits (``dataset_coco.json``, ``dataset_flickr30k.json``, …).

``{"images": [{"filename": "1.jpg", "filepath": "val2014", "split": "restval", "cocoid": 1, "sentences": [{"raw":
"…"}]}]}``. ``restval`` is part of ``train``. Pictures are in the subfolder ``filepath`` of ``images=FOLDER``. By
default, this folder is the first that contains some of them: ``images/``, ``flickr30k-images/``, … next to the file, or
the file's own folder. The id is ``cocoid`` as in ``coco:`` or, if there is none, the file name as in ``flickr8k:``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tellapart.data.caption_values import clean_captions
from tellapart.data.dataset import ReadItems
from tellapart.data.image_lists import read_images
from tellapart.data.listed_pictures import finish_items, picture_folder
from tellapart.data.options import Options
from tellapart.data.pictures import picture_in
from tellapart.data.reader import IMAGES, READERS, Reader
from tellapart.data.splits import checked_split
from tellapart.errors import UsageError
from tellapart.types import Item

# Folders next to the file, as in the archives of Flickr30k and Flickr8k.
PICTURE_FOLDERS = ("images", "flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Flickr8k_Dataset", "")


def read(path: Path, options: Options) -> ReadItems:
    """Returns items in the order of the file."""
    images = read_images(path, "Karpathy's JSON", "filename")["images"]
    names = (f"{image.get(key) or '.'}/{image['filename']}" for image in images for key in ("filepath", ""))
    folder = picture_folder(options, *(path.parent / name for name in PICTURE_FOLDERS), names=names)
    items = []
    for number, image in enumerate(images):
        where, name, sentences = f"{path}: images[{number}]", image["filename"], image.get("sentences", [])
        if not isinstance(sentences, list) or not all(isinstance(s, dict) and "raw" in s for s in sentences):
            raise UsageError(f'{where}: expected "sentences" to be a list of objects with "raw"')
        picture = picture_in(folder, f"{image.get('filepath') or '.'}/{name}")
        flat = picture_in(folder, name)  # many copies of COCO have all pictures in one folder
        picture = flat if flat.path.exists() and not picture.path.exists() else picture
        split = checked_split(image.get("split", ""), where)
        items.append(Item(str(image.get("cocoid", name)), picture, clean_captions(sentences, where), split))
    return finish_items(items, options, str(path))


def _is_layout(content: Any) -> bool:
    images = content.get("images") if isinstance(content, dict) else None
    return isinstance(images, list) and bool(images) and isinstance(images[0], dict) and "sentences" in images[0]


READERS.register(
    Reader(
        name="karpathy",
        factory=read,
        help="Karpathy's JSON with splits",
        keys=IMAGES,
        layouts=(("Karpathy's JSON: MSCOCO, Flickr30k, Flickr8k", "`karpathy:dataset_flickr30k.json?split=test`"),),
        json_layout=_is_layout,
    )
)
