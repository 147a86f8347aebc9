"""Sources of pixels: image files, clips, bytes in memory, and pictures inside larger files.

Every picture (rotated by EXIF, CMYK, 16-bit grey, palette with transparency, animated, one pixel) is decoded to
RGB with eight bits per channel, transparency composited on white, and the first of several frames. Colour profiles
are ignored, as in the programs that published encoders were trained with. A bad file raises `PictureError`
with a one-line message, and never any other exception.

Clips are pictures over time, from a video file (PyAV, extra ``video``) or an animated GIF (Pillow):

    clip = ClipFile("dog.mp4")
    clip.frames(4)      # four RGB pictures: the middles of four equal parts of the time
    clip.image()        # the middle frame, when a single picture is needed

A clip is a `tellapart.types.Picture`, so code that reads pictures also reads clips. Frame k of n is the one shown at
(k + 1/2)/n of the duration, however long each frame stays on the screen. A clip with fewer than n frames repeats some.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import functools
import hashlib
import importlib.util
import io
import os
import stat
import threading
import unicodedata
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import PIL
from PIL import Image, ImageOps

from tellapart.errors import PictureError, UsageError
from tellapart.types import Picture

# Formats Pillow may open. A whitelist, because Pillow also knows formats that start other programs (EPS) or whose
# signature is so weak that a text file passes for a picture.
# (MPO, which phones write into .jpg, comes with JPEG.)
PILLOW_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF")
HEIC = ("heic", "heif", "hif") if importlib.util.find_spec("pillow_heif") else ()  # require the extra of the same name
PICTURE_SUFFIXES = frozenset(
    f".{suffix}"
    for suffix in (
        *("jpg", "jpeg", "jpe", "jfif", "png", "apng", "gif", "webp", "bmp", "dib", "tif", "tiff"),
        *("ppm", "pgm", "pbm", "pnm", "jp2", "j2k", "avif", *HEIC),
    )
)
# Common picture formats that this package cannot read: reported, never skipped silently.
UNSUPPORTED_SUFFIXES = (
    frozenset(
        f".{suffix}"
        for suffix in (
            *("heic", "heif", "hif", "jxl", "jxr", "svg", "psd", "eps", "xcf"),
            *("ico", "icns", "cur", "tga", "pcx", "sgi", "dds", "exr", "qoi", "wmf", "emf"),
            *("cr2", "cr3", "nef", "arw", "dng", "raw", "raf", "orf"),
        )
    )
    - PICTURE_SUFFIXES
)
NO_HEIC = "convert it to JPEG or PNG, or run: pip install 'tellapart[heic]'"
MAX_FILE_BYTES = 1 << 30
MAX_PIXELS = 178_956_970  # Pillow's own limit, beyond which it suspects a decompression bomb

IN_FLIGHT_BYTES = 2 << 30  # limit on what the threads of a process decode at once; a larger picture is decoded alone
PIXEL_BYTES, LAYERED_BYTES = 8, 20  # peak memory per pixel while decoding; the same with transparency


class _InFlight(threading.local):
    """Bytes of `IN_FLIGHT_BYTES` that a thread has claimed; None outside `in_flight`."""

    held: int | None = None


_FREED, _HERE, _USED = threading.Condition(), _InFlight(), [0]


@contextmanager
def in_flight() -> Iterator[None]:
    """Counts what this thread decodes inside the block as in flight until the block ends: other threads wait."""
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
    """Waits until ``size`` bytes may be decoded. A thread that already holds some does not wait, to avoid deadlocks."""
    with _FREED:
        if not _HERE.held:
            _FREED.wait_for(lambda: not _USED[0] or _USED[0] + size <= IN_FLIGHT_BYTES)
        _USED[0] += size
        _HERE.held = (_HERE.held or 0) + size


def content_key(data: bytes) -> str:
    """Returns the 128-bit BLAKE2b hash of the bytes as 32 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class BytesPicture:
    """A picture whose encoded bytes are in memory (a member of an archive, an upload, a file just read)."""

    __slots__ = ("_key", "data", "name")

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name
        self._key: str | None = None

    def key(self) -> str:
        """Returns the content key of the encoded bytes."""
        if self._key is None:
            self._key = content_key(self.data)
        return self._key

    def image(self) -> Image.Image:
        """Decodes to RGB, eight bits per channel. Raises `PictureError`."""
        return decode(self.data, self.name)

    def __repr__(self) -> str:
        return f"BytesPicture({self.name!r}, {len(self.data)} bytes)"


class StoredPicture(ABC):
    """A picture whose encoded bytes are on disk. It is read on access, and its bytes are not kept in memory.

    To get both the key and the pixels, call `read` once and use its result for both.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: tuple[tuple[int, int], str] | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """Returns the name used in messages."""

    @abstractmethod
    def address(self) -> str:
        """Returns the location of the bytes on this machine, unique per picture. It may contain bytes that are not
        valid UTF-8.
        """

    @abstractmethod
    def signature(self) -> tuple[int, int]:
        """Returns (size in bytes, modification time in ns). The content is assumed unchanged while the signature is."""

    @abstractmethod
    def read(self) -> BytesPicture:
        """Reads the bytes. Raises `PictureError` if that fails."""

    def key(self) -> str:
        """Returns the content key of the bytes, which are read once per signature."""
        signature = self.signature()
        if self._known is None or self._known[0] != signature:
            self._known = (signature, self.read().key())
        return self._known[1]

    def image(self) -> Image.Image:
        """Decodes to RGB, eight bits per channel. Raises `PictureError`."""
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
        """Returns the path as given."""
        return str(self.path)

    def address(self) -> str:
        """Returns the absolute path."""
        return str(self.path.absolute())

    def signature(self) -> tuple[int, int]:
        """Returns (size in bytes, modification time in ns). The content is assumed unchanged while the signature is."""
        return signature_of(self.path, self.name)

    def read(self) -> BytesPicture:
        """Reads the file's bytes. Raises `PictureError` if that fails."""
        try:
            # O_NONBLOCK, so that a pipe named .jpg is refused below instead of waited on for ever.
            with open(os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:  # noqa: PTH123
                found = os.fstat(file.fileno())
                if stat.S_ISDIR(found.st_mode):
                    raise PictureError(f"{self.name}: is a folder, not a picture")
                if not stat.S_ISREG(found.st_mode):
                    raise PictureError(f"{self.name}: not a regular file")
                if found.st_size > MAX_FILE_BYTES:
                    raise PictureError(
                        f"{self.name}: too large ({found.st_size / 2**30:.1f} GiB; the maximum is 1 GiB)"
                    )
                return BytesPicture(file.read(), self.name)
        except OSError as error:
            raise PictureError(f"{self.name}: {_os_reason(error)}") from None


def signature_of(path: Path, name: str) -> tuple[int, int]:
    """Returns (size in bytes, modification time in ns) of a file. Raises a `PictureError` whose message begins with
    ``name``.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise PictureError(f"{name}: {_os_reason(error)}") from None
    return found.st_size, found.st_mtime_ns


def decode(data: bytes, name: str) -> Image.Image:
    """Decodes encoded bytes to an RGB picture; ``name`` is used in messages. Raises `PictureError`."""
    with open_image(data, name) as found:
        found.load()
        return to_rgb(found)


@contextmanager
def open_image(data: bytes, name: str, formats: Sequence[str] = PILLOW_FORMATS) -> Iterator[Image.Image]:
    """Opens encoded bytes with Pillow without decoding them. Turns errors inside the block into `PictureError`."""
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
        # Pillow raises almost any exception for damaged bytes (OSError, SyntaxError, ValueError, IndexError,
        # struct.error, zlib.error, MemoryError), and a bad picture must not stop a long job.
        raise PictureError(f"{name}: {_decode_reason(error, data)}") from None


def check_size(width: int, height: int, name: str) -> None:
    """Raises `PictureError` if the picture exceeds the pixel limit."""
    if width * height > MAX_PIXELS:
        raise PictureError(
            f"{name}: {width} x {height} pixels (a decompression bomb?); the maximum is {MAX_PIXELS:,} pixels"
        )


def load_rgb(value: Any) -> Image.Image:
    """Converts a PIL image, a path, encoded bytes, a mapping with ``bytes`` or ``path`` (as in Hugging Face datasets),
    or a list that contains one of these, to an RGB picture.

    Raises `UsageError` for anything else, and `PictureError` for a file that cannot be read.
    """
    if isinstance(value, (list, tuple)):
        if len(value) != 1:
            raise UsageError(f"expected one picture per row, got {len(value)}")
        (value,) = value
    if isinstance(value, Mapping):
        value = value.get("path") if value.get("bytes") is None else value["bytes"]
    if isinstance(value, bytes):
        return decode(value, "the picture")
    if isinstance(value, (str, os.PathLike)):
        return FilePicture(value).image()
    if not isinstance(value, Image.Image):
        raise UsageError(f"expected a PIL image, a path, or {{'bytes', 'path'}}, got {type(value).__name__}")
    return to_rgb(value)


def to_rgb(image: Image.Image) -> Image.Image:
    """Returns an upright RGB copy (EXIF orientation), eight bits per channel, transparency composited on white."""
    with contextlib.suppress(Exception):  # the pixels are fine if only the metadata is damaged
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        image = _eight_bits(image)
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        white = _pillow().new("RGBA", layer.size, (255, 255, 255, 255))
        flat: Image.Image = _pillow().alpha_composite(white, layer)
        return flat.convert("RGB")
    # Copies even if the mode is already RGB, because the result must outlive the file it came from.
    return image.convert("RGB") if image.mode != "RGB" else image.copy()


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scales grey of more than eight bits to eight; Pillow would clip everything above 255 to white.

    Treats integers as 16-bit if any value exceeds 255 (or the mode says so), and floats as 0 to 1, or as 0 to 255 if
    any exceeds 1.
    """
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
    # Legitimate panoramas lie between Pillow's warning and its error, and decode() has its own limit. Pillow's
    # warnings about damaged metadata name no file, so they are useless in a job over many.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
    if HEIC:
        import pillow_heif

        pillow_heif.register_heif_opener()
    Image.init()  # loads all plug-ins at once, because the available ones depend on how Pillow was built
    return Image


def _os_reason(error: OSError) -> str:
    known = {
        errno.ENOENT: "no such file",
        errno.EACCES: "permission denied",
        errno.EPERM: "permission denied",
        errno.EISDIR: "is a folder, not a picture",
        errno.ENOTDIR: "no such file",
        errno.ELOOP: "symbolic link loop",
    }
    return known.get(error.errno or 0, error.strerror or str(error))


def _decode_reason(error: Exception, data: bytes) -> str:
    """Returns a short, readable reason why the bytes are not a picture, without the memory addresses in Pillow's
    messages.
    """
    text = " ".join(str(error).split())
    if isinstance(error, Image.DecompressionBombError):
        return f"over {MAX_PIXELS:,} pixels (a decompression bomb?)"
    if isinstance(error, MemoryError):
        return "too large for the available memory"
    if "truncated" in text.lower() or "unexpected end of file" in text.lower():
        return "truncated (the file ends before the picture does)"
    if isinstance(error, PIL.UnidentifiedImageError):
        return f"not a supported picture format ({_guess_format(data)})"
    return f"damaged ({text or type(error).__name__})"


def _guess_format(data: bytes) -> str:
    head = data[:512]
    if head[4:8] == b"ftyp" and head[8:12] in (b"heic", b"heix", b"mif1", b"msf1", b"heif"):
        return "HEIC: its data is damaged" if HEIC else f"HEIC: {NO_HEIC}"
    if head.startswith((b"%PDF", b"%!PS")):
        return "PDF or PostScript: convert it to PNG"
    if head.startswith((b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF")):
        return "damaged header"
    if b"<svg" in head:
        return "SVG: convert it to PNG"
    try:
        start = head.decode("utf-8", errors="strict" if len(data) <= 512 else "ignore").strip()
    except UnicodeDecodeError:
        return f"first bytes: {head[:8].hex(' ')}"
    if start.isprintable() or "\n" in start:
        return f"a text file: {start[:24].splitlines()[0]!r}" if start else "contains only whitespace"
    return f"first bytes: {head[:8].hex(' ')}"


# Formats FFmpeg may open. It also knows formats that list other files and addresses (HLS, concat), hence a whitelist.
CONTAINERS = "avi,mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpeg,mpegts,mpegvideo,flv,asf,ogg"
VIDEO_SUFFIXES = frozenset(
    f".{suffix}"
    for suffix in (*("mp4", "m4v", "mov", "avi", "webm", "mkv", "mpg", "mpeg", "wmv", "flv", "3gp", "ogv"),)
)
CLIP_SUFFIXES = VIDEO_SUFFIXES | {".gif"}
# A file counts as truncated if it has less than this share of the frames that its header announces.
MIN_FRAME_SHARE = 0.9


class BytesClip(BytesPicture):
    """A clip whose encoded bytes are in memory. ``key`` is the hash of the bytes."""

    __slots__ = ()

    def frames(self, count: int) -> list[Image.Image]:
        """Returns ``count`` RGB frames, evenly spaced over the duration. Raises `PictureError`."""
        if count < 1:
            raise ValueError(f"frames: expected at least 1, got {count}")
        if not self.data:
            raise PictureError(f"{self.name}: empty file")
        read = _gif_frames if self.data.startswith(b"GIF8") else _video_frames
        return read(self.data, self.name, count)

    def image(self) -> Image.Image:
        """Returns the middle frame."""
        return self.frames(1)[0]


class ClipFile(FilePicture):
    """A clip in a file, read on access like a picture."""

    __slots__ = ()

    def read(self) -> BytesClip:
        """Reads the file's bytes. Raises `PictureError` if that fails."""
        return BytesClip(super().read().data, self.name)

    def frames(self, count: int) -> list[Image.Image]:
        """See `BytesClip.frames`."""
        return self.read().frames(count)


def picture_file(path: str | os.PathLike[str]) -> FilePicture:
    """Returns the file as a clip if its suffix is that of a clip (including GIF), else as a picture."""
    return ClipFile(path) if Path(path).suffix.lower() in CLIP_SUFFIXES else FilePicture(path)


def picture_in(folder: Path, name: str) -> FilePicture:
    """Returns the picture or clip in ``folder`` for a ``name`` in a list.

    The name on disk may have slashes instead of backslashes, or a different Unicode normalization form of letters such
    as é (two characters on macOS).
    """
    written = [name, name.replace("\\", "/")]
    if not name.isascii():
        written += [unicodedata.normalize(form, written[1]) for form in ("NFC", "NFD")]
    there = (path for each in written if (path := folder / each).exists()) if written[1] != name or written[2:] else ()
    return picture_file(next(iter(there), folder / written[1]))


def is_clip(picture: Picture) -> bool:
    """Returns whether the picture is a sequence of frames; a scene is one if its length exceeds one."""
    return hasattr(picture, "frames") and getattr(picture, "length", 2) > 1


def sample_frames(picture: Any, count: int) -> list[Image.Image]:
    """Returns ``count`` frames of a clip, evenly spaced over its duration, or the single frame of a still picture."""
    return picture.frames(count) if is_clip(picture) else [picture.image()]


def preview_image(picture: Picture) -> Image.Image:
    """Returns a still for display: the picture itself, or four frames of a clip on one sheet in reading order."""
    if not is_clip(picture):
        return picture.image()
    frames = sample_frames(picture, 4)
    width, height = frames[0].size
    gap = max(1, width // 40)
    sheet = Image.new("RGB", (2 * width + gap, 2 * height + gap), "white")
    for place, frame in enumerate(frames):
        sheet.paste(frame, (place % 2 * (width + gap), place // 2 * (height + gap)))
    return sheet


def uniform_frame_indices(starts: Sequence[float], end: float, count: int) -> list[int]:
    """Returns the indices of the frames shown at the midpoints of ``count`` equal parts of ``starts[0]`` to ``end``.

    ``starts``: when each frame appears, ascending.
    """
    step = (end - starts[0]) / count
    return [bisect.bisect_right(starts, starts[0] + (part + 0.5) * step) - 1 for part in range(count)]


def _gif_frames(data: bytes, name: str, count: int) -> list[Image.Image]:
    with open_image(data, name, ["GIF"]) as found:
        starts = [0.0]
        for place in range(getattr(found, "n_frames", 1)):
            found.seek(place)
            starts.append(starts[-1] + (found.info.get("duration") or 100))  # browsers show a frame of 0 ms for 100
        found.load()  # a truncated file ends in half a frame
        wanted = uniform_frame_indices(starts[:-1], starts[-1], count)
        frames = {}
        for place in sorted(set(wanted)):
            found.seek(place)
            frames[place] = to_rgb(found)
        return [frames[place] for place in wanted]


def _video_frames(data: bytes, name: str, count: int) -> list[Image.Image]:
    try:
        import av
    except ModuleNotFoundError:
        raise PictureError(f"{name}: reading clips requires an extra; run: pip install 'tellapart[video]'") from None
    try:
        with av.open(io.BytesIO(data), options={"format_whitelist": CONTAINERS}) as container:
            if not container.streams.video:
                raise PictureError(f"{name}: the clip has no frames (no video stream)")
            return _Video.read(container, name).frames(count)
    except (av.error.FFmpegError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise PictureError(f"{name}: damaged, or not a supported clip format ({text})") from None


class _Video:
    """The packets of one video stream. Decodes only from the key frame before each requested frame."""

    @classmethod
    def read(cls, container: Any, name: str) -> _Video:
        """Reads the packets of the first video stream. Raises `PictureError` if many are missing."""
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        if not packets:
            raise PictureError(f"{name}: the clip has no frames")
        if len(packets) < MIN_FRAME_SHARE * stream.frames:
            raise PictureError(f"{name}: truncated ({len(packets):,} of the {stream.frames:,} frames in its header)")
        check_size(stream.codec_context.width, stream.codec_context.height, name)
        return cls(packets, stream.codec_context, name, avi=container.format.name == "avi")

    def __init__(self, packets: list[Any], decoder: Any, name: str, *, avi: bool) -> None:
        self.name, self.decoder, self.packets = name, decoder, packets
        # AVI has decoding times instead of presentation times, and some streams have none. Their frames are counted
        # from the start instead and assumed to be equally long.
        self.timed = not avi and all(packet.pts is not None for packet in self.packets)
        self.times = [packet.pts if self.timed else place for place, packet in enumerate(self.packets)]

    def frames(self, count: int) -> list[Image.Image]:
        visible = sorted(
            (time, packet.duration or 0)
            for time, packet in zip(self.times, self.packets, strict=True)
            if not packet.is_discard
        )
        starts = [time for time, _ in visible]
        end = starts[-1] + ((visible[-1][1] if self.timed else 1) or 1)
        wanted = [starts[place] for place in uniform_frame_indices(starts, end, count)]
        found = self._decode(sorted(set(wanted)))
        return [found[time] for time in wanted]

    def _decode(self, wanted: list[int]) -> dict[int, Image.Image]:
        """Returns a mapping from each requested time to its frame."""
        found: dict[int, Image.Image] = {}
        keys = [place for place, packet in enumerate(self.packets) if packet.is_keyframe] if self.timed else []
        place, seen = 0, 0
        while wanted:
            key = max((place for place in keys if self.times[place] <= wanted[0]), default=0)
            if key > place:  # skips the frames in between
                self.decoder.flush_buffers()
                place = key
            if place > len(self.packets):
                raise PictureError(f"{self.name}: damaged (cannot decode the frame at {wanted[0]})")
            for frame in self.decoder.decode(self.packets[place] if place < len(self.packets) else None):
                time = frame.pts if self.timed else seen
                seen += 1
                if time in wanted:
                    wanted.remove(time)
                    found[time] = _turned(frame)
            place += 1
        return found


def _turned(frame: Any) -> Image.Image:
    """Returns the frame in RGB, rotated according to the file's metadata (e.g. clips from a phone held upright)."""
    image: Image.Image = frame.to_image()
    return image.rotate(frame.rotation, expand=True) if frame.rotation % 360 else image


class PackedPicture(StoredPicture):
    """A picture inside a larger file. ``inside`` is its position in the file."""

    __slots__ = ("_path", "inside")

    def __init__(self, path: Path, inside: str) -> None:
        super().__init__()
        self._path, self.inside = path, inside

    @property
    def name(self) -> str:
        """Returns the file and the position in it."""
        return f"{self._path}#{self.inside}"

    def address(self) -> str:
        """Returns the absolute path and the position, separated by a double slash, which no path contains."""
        return f"{self._path.absolute()}//{self.inside}"

    def signature(self) -> tuple[int, int]:
        """Returns the signature of the file."""
        return signature_of(self._path, self.name)

    def read(self) -> BytesPicture:
        """Reads the bytes."""
        return BytesPicture(self.data(), self.name)

    @abstractmethod
    def data(self) -> bytes:
        """Returns the encoded bytes. Raises `PictureError`."""


class PackedClip(PackedPicture):
    """A clip inside a larger file."""

    __slots__ = ()

    def read(self) -> BytesClip:
        """Reads the bytes."""
        return BytesClip(self.data(), self.name)

    def frames(self, count: int) -> list[Image.Image]:
        """See `tellapart.data.pictures.BytesClip.frames`."""
        return self.read().frames(count)


T = TypeVar("T")
R = TypeVar("R")

MOST_THREADS = 8  # more would wait for each other, because outside of calls into C only one runs at a time
MOST_BYTES = 512 << 20


def ahead(
    work: Callable[[T], R],
    things: Iterable[T],
    *,
    buffer: int,
    threads: int | None = None,
    size: Callable[[T], int] = lambda thing: 0,
) -> Generator[R, None, None]:
    """Yields ``work(thing)`` for each of ``things``, in order, and computes up to ``buffer`` results ahead.

    threads: by default one per core, at most `MOST_THREADS`. size: returns the size of a thing in bytes; while those in
    progress add up to `MOST_BYTES` or more, no others are started. An exception in ``work`` is raised in place of its
    result. Closing the iterator, or Ctrl-C, cancels the things that have not been started.
    """
    threads = threads or min(MOST_THREADS, os.cpu_count() or 1)
    rest, pending = iter(things), deque[tuple[int, "futures.Future[R]"]]()
    pool = futures.ThreadPoolExecutor(threads, "ahead")

    def fill() -> None:
        while len(pending) < max(buffer, 1) and sum(held for held, _ in pending) < MOST_BYTES:
            for thing in islice(rest, 1):
                pending.append((size(thing), pool.submit(work, thing)))
                break
            else:
                return

    try:
        fill()
        while pending:
            result = pending.popleft()[1].result()
            fill()
            yield result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
