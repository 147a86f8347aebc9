"""Sources of pixels: a file on disk, or bytes in memory.

Whatever a picture is (turned by EXIF, CMYK, 16-bit grey, palette with transparency, animated, one pixel), it
leaves here as RGB, eight bits a channel, transparency laid on white, the first frame of several. Colour
profiles are not applied: neither are they by the programs that published encoders were trained with.
A bad file raises `PictureError`, with one line, and nothing else.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import importlib.util
import io
import os
import stat
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tellapart.errors import PictureError

if TYPE_CHECKING:
    from PIL import Image

# What Pillow may open. A list, because Pillow also knows formats that start other programs (EPS) or whose
# signature is so weak that a text file passes for a picture.
# (MPO, which phones write into .jpg, comes with JPEG.)
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF")
HEIC = ("heic", "heif", "hif") if importlib.util.find_spec("pillow_heif") else ()  # with the extra of that name
SUFFIXES = frozenset(
    f".{suffix}"
    for suffix in (
        *("jpg", "jpeg", "jpe", "jfif", "png", "apng", "gif", "webp", "bmp", "dib", "tif", "tiff"),
        *("ppm", "pgm", "pbm", "pnm", "jp2", "j2k", "avif", *HEIC),
    )
)
# Picture formats that people have, and that this package does not read: reported, never passed over.
UNSUPPORTED_SUFFIXES = (
    frozenset(
        f".{suffix}"
        for suffix in (
            *("heic", "heif", "hif", "jxl", "svg", "psd", "eps"),
            *("cr2", "cr3", "nef", "arw", "dng", "raw", "raf", "orf"),
        )
    )
    - SUFFIXES
)
NO_HEIC = "convert it to JPEG or PNG, or type: pip install 'tellapart[heic]'"
MAX_FILE_BYTES = 1 << 30
MAX_PIXELS = 178_956_970  # Pillow's own bound: beyond it a file is taken for a decompression bomb

IN_FLIGHT_BYTES = 2 << 30  # of pictures that the threads of a process decode at once; a larger one is decoded alone
PIXEL_BYTES, LAYERED_BYTES = 8, 20  # at the peak of decoding a pixel; of one with transparency


class _InFlight(threading.local):
    """What a thread has claimed of `IN_FLIGHT_BYTES`; None outside `in_flight`."""

    held: int | None = None


_FREED, _HERE, _USED = threading.Condition(), _InFlight(), [0]


@contextmanager
def in_flight() -> Iterator[None]:
    """What this thread decodes inside the block counts as in flight until the block ends: other threads wait."""
    if _HERE.held is not None:
        yield
        return
    _HERE.held = 0
    try:
        yield
    finally:
        with _FREED:
            _USED[0] -= _HERE.held
            _FREED.notify_all()
        _HERE.held = None


def _claim(size: int) -> None:
    """Wait until so many bytes may be decoded; a thread that holds some already does not wait, so none waits for it."""
    with _FREED:
        if not _HERE.held:
            _FREED.wait_for(lambda: not _USED[0] or _USED[0] + size <= IN_FLIGHT_BYTES)
        _USED[0] += size
        _HERE.held = (_HERE.held or 0) + size


def content_key(data: bytes) -> str:
    """BLAKE2b of the bytes, 128 bits as 32 hexadecimal digits: equal bytes have equal keys."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class BytesPicture:
    """A picture whose encoded bytes are in memory (an archive's member, an upload, a file just read)."""

    __slots__ = ("_key", "data", "name")

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name
        self._key: str | None = None

    def key(self) -> str:
        """The content key of the encoded bytes."""
        if self._key is None:
            self._key = content_key(self.data)
        return self._key

    def image(self) -> Image.Image:
        """Decode to RGB, eight bits a channel. Raises `PictureError`."""
        return decode(self.data, self.name)

    def __repr__(self) -> str:
        return f"BytesPicture({self.name!r}, {len(self.data)} bytes)"


class StoredPicture(ABC):
    """A picture whose encoded bytes lie on disk. It is read on access, and its bytes are not kept.

    To get both the key and the pixels, call `read` once and use its result for both.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: tuple[tuple[int, int], str] | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """What a message calls it."""

    @abstractmethod
    def address(self) -> str:
        """Where the bytes are, on this machine: no two pictures share one. It need not be proper text."""

    @abstractmethod
    def signature(self) -> tuple[int, int]:
        """(size, time of last change in ns) of the file: while it stands, the content is taken to stand."""

    @abstractmethod
    def read(self) -> BytesPicture:
        """The bytes, read now. Raises `PictureError` for whatever cannot be read."""

    def key(self) -> str:
        """The content key of the bytes. Reads them once for as long as the signature stands."""
        signature = self.signature()
        if self._known is None or self._known[0] != signature:
            self._known = (signature, self.read().key())
        return self._known[1]

    def image(self) -> Image.Image:
        """Decode to RGB, eight bits a channel. Raises `PictureError`."""
        return self.read().image()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class FilePicture(StoredPicture):
    """A picture in a file of its own."""

    __slots__ = ("path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = Path(path)

    @property
    def name(self) -> str:
        """The path as it was given."""
        return str(self.path)

    def address(self) -> str:
        """The absolute path."""
        return str(self.path.absolute())

    def signature(self) -> tuple[int, int]:
        """(size in bytes, time of last change in ns): while it stands, the content is taken to stand."""
        return signature_of(self.path, self.name)

    def read(self) -> BytesPicture:
        """The file's bytes, read now. Raises `PictureError` for whatever cannot be read."""
        try:
            # O_NONBLOCK, so that a pipe named .jpg is refused below instead of waited on for ever.
            with open(os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:  # noqa: PTH123
                found = os.fstat(file.fileno())
                if stat.S_ISDIR(found.st_mode):
                    raise PictureError(f"{self.name}: a folder, not a picture")
                if not stat.S_ISREG(found.st_mode):
                    raise PictureError(f"{self.name}: not an ordinary file")
                if found.st_size > MAX_FILE_BYTES:
                    raise PictureError(f"{self.name}: too large ({found.st_size / 2**30:.1f} GiB; at most 1 GiB)")
                return BytesPicture(file.read(), self.name)
        except OSError as error:
            raise PictureError(f"{self.name}: {_os_reason(error)}") from None


def signature_of(path: Path, name: str) -> tuple[int, int]:
    """(size in bytes, time of last change in ns) of a file. Raises `PictureError` that begins with ``name``."""
    try:
        found = path.stat()
    except OSError as error:
        raise PictureError(f"{name}: {_os_reason(error)}") from None
    return found.st_size, found.st_mtime_ns


def decode(data: bytes, name: str) -> Image.Image:
    """Encoded bytes to an RGB picture; ``name`` is what a message calls it. Raises `PictureError`."""
    with open_image(data, name) as found:
        found.load()
        return to_rgb(_upright(found))


@contextmanager
def open_image(data: bytes, name: str, formats: Sequence[str] = FORMATS) -> Iterator[Image.Image]:
    """Pillow's view of encoded bytes, nothing decoded yet. What fails inside the block is a `PictureError`, too."""
    if not data:
        raise PictureError(f"{name}: empty file")
    pil = _pillow()
    try:
        with in_flight(), pil.open(io.BytesIO(data), formats=[each for each in formats if each in pil.OPEN]) as found:
            width, height = found.size
            check_size(width, height, name)
            _claim(width * height * (LAYERED_BYTES if found.has_transparency_data else PIXEL_BYTES))
            yield found
    except PictureError:
        raise
    except Exception as error:
        # Pillow answers damaged bytes with almost any exception (OSError, SyntaxError, ValueError, IndexError,
        # struct.error, zlib.error, MemoryError): a bad picture must not be able to stop a long job.
        raise PictureError(f"{name}: {_decode_reason(error, data)}") from None


def check_size(width: int, height: int, name: str) -> None:
    """A `PictureError` for more pixels than are decoded here."""
    if width * height > MAX_PIXELS:
        raise PictureError(f"{name}: {width} x {height} pixels (a decompression bomb?); at most {MAX_PIXELS:,}")


def _upright(image: Image.Image) -> Image.Image:
    """The picture as its EXIF orientation says it is to be seen; damaged EXIF leaves it as it is."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # the pixels are good, only their metadata are not
        return image


def to_rgb(image: Image.Image) -> Image.Image:
    """RGB, eight bits a channel, transparency laid on white: a copy, which outlives the file."""
    if image.mode.startswith(("I", "F")):
        image = _eight_bits(image)
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        white = _pillow().new("RGBA", layer.size, (255, 255, 255, 255))
        flat: Image.Image = _pillow().alpha_composite(white, layer)
        return flat.convert("RGB")
    # A copy where the mode is RGB already: what is handed out must outlive the file it came from.
    return image.convert("RGB") if image.mode != "RGB" else image.copy()


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey of more than eight bits, scaled; Pillow alone would clip everything above 255 to white.

    Integers are taken as 16-bit where any value exceeds 255 (or the mode says so); floats as 0 to 1, or as
    0 to 255 where they exceed 1.
    """
    import numpy as np

    grey_HW = np.asarray(image)
    if image.mode == "F":
        grey_HW = np.nan_to_num(grey_HW)
        grey_HW = grey_HW * 255.0 if grey_HW.max(initial=0) <= 1 else grey_HW
    elif image.mode.startswith("I;16") or grey_HW.max(initial=0) > 255:
        grey_HW = grey_HW.astype(np.int64) / 257.0
    grey: Image.Image = _pillow().fromarray(np.clip(np.rint(grey_HW), 0, 255).astype(np.uint8))
    return grey


@functools.cache
def _pillow() -> Any:
    from PIL import Image

    # Between Pillow's warning and its error lie honest panoramas: decode() has its own bound. Its remarks on
    # damaged metadata name no file, so they help nobody in a job over many.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
    if HEIC:
        import pillow_heif

        pillow_heif.register_heif_opener()
    Image.init()  # all plug-ins at once: which of them there are depends on how Pillow was built
    return Image


def _os_reason(error: OSError) -> str:
    known = {
        errno.ENOENT: "no such file",
        errno.EACCES: "no permission to read it",
        errno.EPERM: "no permission to read it",
        errno.EISDIR: "a folder, not a picture",
        errno.ENOTDIR: "no such file",
        errno.ELOOP: "a link that leads to itself",
    }
    return known.get(error.errno or 0, error.strerror or str(error))


def _decode_reason(error: Exception, data: bytes) -> str:
    """Why the bytes are no picture, for a person: short, and without Pillow's buffer addresses."""
    from PIL import Image, UnidentifiedImageError

    text = " ".join(str(error).split())
    if isinstance(error, Image.DecompressionBombError):
        return f"over {MAX_PIXELS:,} pixels (a decompression bomb?)"
    if isinstance(error, MemoryError):
        return "too large for this machine's memory"
    if "truncated" in text.lower() or "unexpected end" in text.lower():
        return "truncated (the file ends before the picture does)"
    if isinstance(error, UnidentifiedImageError):
        return f"not a picture that can be read here ({_guess_format(data)})"
    return f"damaged ({text or type(error).__name__})"


def _guess_format(data: bytes) -> str:
    head = data[:512]
    if head[4:8] == b"ftyp" and head[8:12] in (b"heic", b"heix", b"mif1", b"msf1", b"heif"):
        return "HEIC: its data is damaged" if HEIC else f"HEIC: {NO_HEIC}"
    if head.startswith((b"%PDF", b"%!PS")):
        return "PDF or PostScript: convert it to PNG"
    if head.startswith((b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF")):
        return "it begins like one, but its header is damaged"
    if b"<svg" in head:
        return "SVG: convert it to PNG"
    try:
        start = head.decode("utf-8", errors="strict" if len(data) <= 512 else "ignore").strip()
    except UnicodeDecodeError:
        return f"its first bytes are {head[:8].hex(' ')}"
    if start.isprintable() or "\n" in start:
        return f"it is a text file: {start[:24].splitlines()[0]!r}" if start else "it holds only blanks"
    return f"its first bytes are {head[:8].hex(' ')}"
