"""``coco:FILE`` or ``coco:FOLDER``: COCO's captions JSON.

``{"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [{"image_id": 1, "caption": "…"}]}``. For a folder, reads
``captions*.json`` in the folder or its ``annotations/``. The split is inferred from the file name
(``captions_val2017.json``). Pictures are in ``images=FOLDER``; by default, in the first of ``images/``, ``val2017/``,
``images/val2017/`` and ``validation/`` next to the file that contains some of them. The id is the image's id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tellapart.data.caption_values import clean_captions
from tellapart.data.dataset import ReadItems
from tellapart.data.file_patterns import files_below
from tellapart.data.image_lists import read_images
from tellapart.data.listed_pictures import finish_items, picture_folder
from tellapart.data.options import Options
from tellapart.data.pictures import picture_in
from tellapart.data.reader import IMAGES, READERS, Reader
from tellapart.data.record_keys import VIZWIZ_FLAGS
from tellapart.data.skipped import Skipped
from tellapart.data.splits import split_from_name
from tellapart.errors import UsageError
from tellapart.types import Item

# Folder names used by FiftyOne and Open Images (which includes nocaps' pictures).
SPLIT_FOLDERS = {"train": ("train",), "val": ("validation", "val"), "test": ("test",)}


def read(path: Path, options: Options) -> ReadItems:
    """Returns items in the order of the file's ``images``. Reports captions of pictures that ``images``
    does not list.
    """
    if not path.exists():
        raise UsageError(
            f"{path}: no such file or folder; coco: expects a captions JSON, or a folder that contains one"
        )
    files, missing = annotation_files(path, options, "coco", "captions*.json"), Skipped()
    return finish_items(read_files(files, options, missing), options, ", ".join(map(str, files)), missing)


def annotation_files(path: Path, options: Options, kind: str, pattern: str) -> list[Path]:
    """Returns the file, or the files in a folder or its ``annotations/`` that contain requested splits by their name.

    Raises `UsageError` if there are none.
    """
    if not path.is_dir():
        return [path]
    files = files_below(path, pattern, f"annotations/{pattern}")
    if not files:
        raise UsageError(f"{path}: no {pattern} in this folder; specify the file: {kind}:{path}/FILE.json")
    return [file for file in files if split_from_name(file.name) in options.splits] or files


def read_files(
    files: Iterable[Path],
    options: Options,
    missing: Skipped,
    wanted: Callable[[dict[str, Any]], bool] = lambda image: True,
) -> list[Item]:
    """Returns the items of some files. ``wanted``: which images to include (nocaps selects by domain)."""
    items = []
    for file in files:
        content = read_images(file, "COCO captions", "file_name", "id")
        images, captions = content["images"], _captions(content.get("annotations", []), file)
        folder, split = _folder(file, options, (image["file_name"] for image in images)), split_from_name(file.name)
        for image in filter(wanted, images):
            references = clean_captions(captions.get(str(image["id"]), []), f"{file}: image_id {image['id']}")
            items.append(Item(str(image["id"]), picture_in(folder, image["file_name"]), references, split))
        listed = {str(image["id"]) for image in images}
        for id_ in captions:
            if id_ not in listed:
                missing.add(f"image_id {id_}", 'has captions, but does not occur in "images"')
    return items


def _captions(annotations: Any, file: Path) -> dict[str, list[Any]]:
    """Returns the captions by image id, with VizWiz's flags for `clean_captions`."""
    if not isinstance(annotations, list):
        raise UsageError(f'{file}: "annotations" is not a list')
    captions: dict[str, list[Any]] = {}
    for number, annotation in enumerate(annotations):
        if not isinstance(annotation, dict) or "image_id" not in annotation:
            raise UsageError(f'{file}: annotations[{number}] has no "image_id"')
        if "caption" not in annotation:
            raise UsageError(f'{file}: annotations[{number}] has no "caption" (is this the bounding-box file?)')
        text = annotation["caption"]
        flags = {flag: annotation[flag] for flag in VIZWIZ_FLAGS if flag in annotation}
        flagged = {"caption": text, **flags} if flags and text is not None else text
        captions.setdefault(str(annotation["image_id"]), []).append(flagged)
    return captions


def _folder(file: Path, options: Options, names: Iterable[str]) -> Path:
    home = file.parent.parent if file.parent.name == "annotations" else file.parent
    year = re.search(r"(?:train|val|test)\d{4}", file.name)
    named = [home / year[0], home / "images" / year[0]] if year else []
    split = [home / name for name in SPLIT_FOLDERS.get(split_from_name(file.name), ())]
    return picture_folder(options, *named, *split, home / "images", home, names=names)


READERS.register(
    Reader(
        name="coco",
        factory=read,
        help="COCO captions JSON, or the folder that contains it",
        keys=IMAGES,
        layouts=(
            (
                "MSCOCO's captions JSON, or the folder that contains it",
                "`coco:annotations/captions_val2017.json`, `coco:COCO?split=val`",
            ),
        ),
        json_layout=lambda content: (
            isinstance(content, dict)
            and isinstance(content.get("images"), list)
            and isinstance(content.get("annotations"), list)
        ),
        published=True,
    )
)
