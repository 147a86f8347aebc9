"""Finds defective pictures: unreadable, blank, duplicate, or displayed differently by different programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tellapart.check.kinds import Finding
from tellapart.data.decode import decode, open_image
from tellapart.data.pictures import is_clip
from tellapart.errors import PictureError
from tellapart.types import Item, Picture
from tellapart.utils.progress import track


def picture_faults(picture: Picture, name: str) -> Iterator[tuple[str, str]]:
    """Yields (kind, detail) for each reason why a picture is unreadable or displayed differently by different programs.

    name: the file name. Clips and rendered pictures have no encoded bytes, so only their readability is checked.
    """
    data = getattr(picture, "data", None)
    try:
        if data is None and hasattr(picture, "read"):
            data = picture.read().data
        if data is None or is_clip(picture):
            picture.image()
            return
        with open_image(data, name) as found:
            yield from _read_differently(found, name)
        small = decode(data, name)
    except PictureError as error:
        yield "unreadable", str(error).removeprefix(f"{name}: ")
        return
    if small.width * small.height > 1 and all(low == high for low, high in _extrema(small)):
        yield "blank", "single colour"


def _extrema(image: Any) -> Sequence[tuple[int, int]]:
    found = image.getextrema()
    return found if isinstance(found[0], tuple) else [found]


_ORIENTATION = 0x0112
# The formats that a suffix may stand for; phones save MPO files as .jpg.
_FORMATS = {
    **dict.fromkeys(("jpg", "jpeg", "jpe", "jfif"), ("JPEG", "MPO")),
    **dict.fromkeys(("tif", "tiff"), ("TIFF",)),
    **dict.fromkeys(("bmp", "dib"), ("BMP", "DIB")),
    **{"png": ("PNG",), "apng": ("PNG",), "gif": ("GIF",), "webp": ("WEBP",), "avif": ("AVIF",)},
}


def _read_differently(image: Any, name: str) -> Iterator[tuple[str, str]]:
    suffix = Path(name).suffix.lower().removeprefix(".")
    if suffix in _FORMATS and image.format not in _FORMATS[suffix]:
        yield "suffix", f"{image.format} data in a file whose name ends in .{suffix}"
    try:
        turned = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # every program ignores damaged EXIF
        turned = 1
    if turned not in (0, 1):
        yield "rotated", f"EXIF orientation {turned}"
    if image.mode == "CMYK":
        yield "cmyk", "CMYK"
    if image.mode.startswith(("I", "F")):
        yield "16-bit", f"mode {image.mode}"
    if image.has_transparency_data:
        yield "transparent", f"mode {image.mode}"


def check_pictures(items: Sequence[Item]) -> Iterator[Finding]:
    """Finds defective and duplicate pictures. Decodes each picture only once."""
    first: dict[str, str] = {}
    for item in track(items, label="checking pictures"):
        read = getattr(item.picture, "read", None)
        try:
            picture = read() if read is not None else item.picture  # reads the bytes once, for the key and the pixels
        except PictureError as error:
            yield Finding("unreadable", item.id, detail=str(error).removeprefix(f"{item.picture.name}: "))
            continue
        for kind, detail in picture_faults(picture, item.picture.name):
            yield Finding(kind, item.id, detail=detail)
        if (other := first.setdefault(picture.key(), item.id)) != item.id:
            yield Finding("same picture", item.id, detail=f"same as {other}")
