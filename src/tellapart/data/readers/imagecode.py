"""``imagecode:FILE``: ImageCoDe (Krojer et al. 2022), sets of ten very similar pictures, some with a description.

``valid_data.json``: ``{"SET": {"3": "…"}}`` describes ``SET/img3.jpg`` among ``SET/img0.jpg`` to ``SET/img9.jpg``.
The test file, ``{"SET": ["…"]}``, does not reveal which pictures its descriptions refer to, so its pictures have no
references. Pictures are in ``images=FOLDER``, by default in ``image-sets/`` (as published) or ``images/`` next to the
file. ``only=described`` excludes pictures without a description. The id is ``SET/img3.jpg``, as in the candidate sets
of `tellapart.evaluation.file_sets`, which reads the same file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tellapart.data.caption_values import clean_captions
from tellapart.data.dataset import ReadItems
from tellapart.data.listed_pictures import finish_items, picture_folder
from tellapart.data.options import Options
from tellapart.data.pictures import picture_in
from tellapart.data.reader import IMAGES, READERS, Reader
from tellapart.data.splits import split_from_name
from tellapart.data.text_files import read_json
from tellapart.errors import UsageError
from tellapart.types import Item

SIZE = 10  # pictures per set, so chance is one in ten
PLACES = frozenset(map(str, range(SIZE)))  # the keys of descriptions


class ImageSet(NamedTuple):
    """The ids of ten pictures, and the descriptions of some of them, in the order of the pictures."""

    members: tuple[str, ...]
    described: dict[str, str]


def read(path: Path, options: Options) -> ReadItems:
    """Returns the items, one set at a time."""
    if (only := options.text("only")) not in ("", "described"):
        raise UsageError(f"{options.spec}: only={only}: expected only=described")
    folder = picture_folder(options, path.parent / "image-sets", path.parent / "images", path.parent)
    split, items = split_from_name(path.name), []
    for members, described in image_sets(read_json(path), str(path)):
        for id_ in described if only else members:
            references = clean_captions(described.get(id_), f"{path}: {id_}")
            items.append(Item(id_, picture_in(folder, id_), references, split))
    return finish_items(items, options, str(path))


def is_layout(value: Any) -> bool:
    """Returns whether a JSON value is one of ImageCoDe's files."""
    return isinstance(value, dict) and bool(value) and all(isinstance(texts, dict | list) for texts in value.values())


def image_sets(value: Any, where: str) -> Iterator[ImageSet]:
    """Yields the sets of a file in order. Raises a `UsageError` whose message begins with ``where``."""
    if not is_layout(value):
        raise UsageError(f'{where}: not ImageCoDe\'s JSON; expected {{"set": {{"3": "description of img3"}}}}')
    for name, texts in value.items():
        members = tuple(f"{name}/img{place}.jpg" for place in range(SIZE))
        if isinstance(texts, list):
            yield ImageSet(members, {})
            continue
        if not all(index in PLACES and isinstance(text, str) for index, text in texts.items()):
            raise UsageError(f"{where}, set {name}: expected texts with the keys 0 to {SIZE - 1}")
        yield ImageSet(members, {members[int(index)]: texts[index] for index in sorted(texts, key=int)})


READERS.register(
    Reader(
        name="imagecode",
        factory=read,
        help="ImageCoDe's sets of ten pictures",
        keys={**IMAGES, "only": "`described`: excludes pictures without a description"},
        layouts=(("ImageCoDe", "`imagecode:valid_data.json?images=image-sets`"),),
        published=True,
    )
)
