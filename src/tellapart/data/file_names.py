"""Lists the suffixes of pictures and clips, and recognizes their file names."""

from __future__ import annotations

import importlib.util
import re


def _dotted(*suffixes: str) -> frozenset[str]:
    return frozenset(f".{suffix}" for suffix in suffixes)


HEIC = ("heic", "heif", "hif") if importlib.util.find_spec("pillow_heif") else ()  # requires the extra heic
PICTURE_SUFFIXES = _dotted(
    *("jpg", "jpeg", "jpe", "jfif", "png", "apng", "gif", "webp", "bmp", "dib", "tif", "tiff"),
    *("ppm", "pgm", "pbm", "pnm", "jp2", "j2k", "avif", *HEIC),
)
CLIP_SUFFIXES = _dotted("gif", "mp4", "m4v", "mov", "avi", "webm", "mkv", "mpg", "mpeg", "wmv", "flv", "3gp", "ogv")
READABLE_SUFFIXES = PICTURE_SUFFIXES | CLIP_SUFFIXES
# Common picture formats that this package cannot read; they are reported, never skipped silently.
UNSUPPORTED_SUFFIXES = _dotted(
    *("heic", "heif", "hif", "jxl", "jxr", "svg", "psd", "eps", "xcf"),
    *("ico", "icns", "cur", "tga", "pcx", "sgi", "dds", "exr", "qoi", "wmf", "emf"),
    *("cr2", "cr3", "nef", "arw", "dng", "raw", "raf", "orf"),
).difference(PICTURE_SUFFIXES)
# A regular expression for the suffixes above, without the dot: lists also name pictures that cannot be read here.
MEDIA = f"(?:{'|'.join(sorted(suffix[1:] for suffix in READABLE_SUFFIXES | UNSUPPORTED_SUFFIXES))})"
_FILE = re.compile(rf"\S.*\.{MEDIA}", re.IGNORECASE)


def is_file_name(text: str) -> bool:
    """Returns whether a text is the name or path of a picture or clip."""
    return bool(_FILE.fullmatch(text))
