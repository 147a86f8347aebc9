"""Decodes pictures to RGB with eight bits per channel.

Handles EXIF rotation, CMYK, 16-bit grey, palettes and single pixels. Transparency is composited on white, and the first
frame of an animation is used. Colour profiles are ignored, as in the code that published encoders were trained with. A
bad file raises `PictureError` with a one-line message, and never any other exception.
"""

from __future__ import annotations

import contextlib
import functools
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import PIL
from PIL import Image, ImageOps

from tellapart.data.decode_memory import LAYERED_BYTES, PIXEL_BYTES, claim, decode_memory
from tellapart.data.file_names import HEIC
from tellapart.errors import PictureError

# Formats Pillow may open. A whitelist, because Pillow also knows formats that start other programs (EPS) or whose
# signature is so weak that a text file passes for a picture.
# (MPO, which phones write to .jpg files, comes with JPEG.)
PILLOW_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF")
NO_HEIC = "convert it to JPEG or PNG, or run: pip install 'tellapart[heic]'"
MAX_PIXELS = 178_956_970  # Pillow's own limit, beyond which it suspects a decompression bomb


def decode(data: bytes, name: str) -> Image.Image:
    """Decodes encoded bytes to an RGB picture; ``name`` is used in messages. Raises `PictureError`."""
    with open_image(data, name) as found:
        found.load()
        return to_rgb(found)


@contextmanager
def open_image(data: bytes, name: str, formats: Sequence[str] = PILLOW_FORMATS) -> Iterator[Image.Image]:
    """Opens encoded bytes with Pillow, without decoding them. Turns errors in the block into `PictureError`."""
    if not data:
        raise PictureError(f"{name}: empty file")
    _set_up_pillow()
    try:
        with (
            decode_memory(),
            Image.open(io.BytesIO(data), formats=[each for each in formats if each in Image.OPEN]) as found,
        ):
            width, height = found.size
            check_size(width, height, name)
            claim(width * height * (LAYERED_BYTES if found.has_transparency_data else PIXEL_BYTES))
            yield found
    except PictureError:
        raise
    except Exception as error:
        # Pillow raises almost any exception for damaged bytes (OSError, SyntaxError, ValueError, IndexError,
        # struct.error, zlib.error, MemoryError), and a bad picture must not stop a long job.
        raise PictureError(f"{name}: {_decode_reason(error, data)}") from None


def check_size(width: int, height: int, name: str) -> None:
    """Raises `PictureError` if the picture exceeds the pixel limit."""
    if width * height > MAX_PIXELS:
        raise PictureError(
            f"{name}: {width} x {height} pixels (a decompression bomb?); the maximum is {MAX_PIXELS:,} pixels"
        )


def to_rgb(image: Image.Image) -> Image.Image:
    """Returns an RGB copy, rotated by its EXIF orientation, with eight bits per channel and transparency on white."""
    with contextlib.suppress(Exception):  # damaged metadata does not affect the pixels
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        image = _eight_bits(image)
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, layer).convert("RGB")
    # Copies even if the mode is already RGB, because the result must outlive the file it came from.
    return image.convert("RGB") if image.mode != "RGB" else image.copy()


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scales grey values to eight bits, because Pillow would clip values above 255 to white.

    Integers are 16-bit if any value exceeds 255 or the mode says so. Floats range from 0 to 1, or from 0 to 255 if
    any value exceeds 1.
    """
    grey_HW = np.asarray(image)
    if image.mode == "F":
        grey_HW = np.nan_to_num(grey_HW)
        grey_HW = grey_HW * 255.0 if grey_HW.max(initial=0) <= 1 else grey_HW
    elif image.mode.startswith("I;16") or grey_HW.max(initial=0) > 255:
        grey_HW = grey_HW.astype(np.int64) / 257.0
    return Image.fromarray(np.clip(np.rint(grey_HW), 0, 255).astype(np.uint8))


@functools.cache
def _set_up_pillow() -> None:
    # Legitimate panoramas lie between Pillow's warning and its error, and decode() has its own limit. Pillow's
    # warnings about damaged metadata name no file, so they are useless in a job with many files.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
    if HEIC:
        import pillow_heif

        pillow_heif.register_heif_opener()
    Image.init()  # loads all plug-ins at once, because the available ones depend on how Pillow was built


def _decode_reason(error: Exception, data: bytes) -> str:
    """Returns a short, readable reason why the bytes are not a picture, without the memory addresses in Pillow's
    messages.
    """
    text, head = " ".join(str(error).split()), data[:512]
    if isinstance(error, Image.DecompressionBombError):
        return f"over {MAX_PIXELS:,} pixels (a decompression bomb?)"
    if isinstance(error, MemoryError):
        return "too large for the available memory"
    if "truncated" in text.lower() or "unexpected end of file" in text.lower():
        return "truncated (the file ends before the picture does)"
    if not isinstance(error, PIL.UnidentifiedImageError):
        return f"damaged ({text or type(error).__name__})"
    if head.startswith((b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF")):
        return "damaged header"
    found = _format_of(head, whole=len(data) <= len(head))
    return "damaged HEIC file" if HEIC and found.startswith("HEIC") else f"not a supported picture format ({found})"


def _format_of(head: bytes, *, whole: bool) -> str:
    """Describes the first bytes of a file that is not a picture. ``whole``: whether these are all of its bytes."""
    if head[4:8] == b"ftyp" and head[8:12] in (b"heic", b"heix", b"mif1", b"msf1", b"heif"):
        return f"HEIC: {NO_HEIC}"
    if head.startswith((b"%PDF", b"%!PS")):
        return "PDF or PostScript: convert it to PNG"
    if b"<svg" in head:
        return "SVG: convert it to PNG"
    with contextlib.suppress(UnicodeDecodeError):
        start = head.decode("utf-8", errors="strict" if whole else "ignore").strip()
        if start.isprintable() or "\n" in start:
            return f"a text file: {start[:24].splitlines()[0]!r}" if start else "contains only whitespace"
    return f"first bytes: {head[:8].hex(' ')}"
