"""Sources of pixels: image files, clips, bytes in memory, and pictures that lie with others in a larger file.

Whatever a picture is (turned by EXIF, CMYK, 16-bit grey, palette with transparency, animated, one pixel), it
leaves here as RGB, eight bits a channel, transparency laid on white, the first frame of several. Colour
profiles are not applied: neither are they by the programs that published encoders were trained with.
A bad file raises `PictureError`, with one line, and nothing else.

Clips are pictures over time, from a video file (PyAV, extra ``video``) or an animated GIF (Pillow):

    clip = ClipFile("dog.mp4")
    clip.frames(4)      # four RGB pictures: the middles of four equal parts of the time
    clip.image()        # the middle frame, where one picture is wanted

A clip is a `tellapart.types.Picture`: whatever reads pictures reads clips. Two rules decide which frames are taken:
frame k of n is the one that is shown at (k + 1/2)/n of the duration, however long each stays on the screen; a clip of
fewer frames repeats them.
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
            *("heic", "heif", "hif", "jxl", "jxr", "svg", "psd", "eps", "xcf"),
            *("ico", "icns", "cur", "tga", "pcx", "sgi", "dds", "exr", "qoi", "wmf", "emf"),
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
    """Counts what a thread has claimed of `IN_FLIGHT_BYTES`; None outside `in_flight`."""

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
        """Returns what a message calls it."""

    @abstractmethod
    def address(self) -> str:
        """Returns where the bytes are, on this machine: no two pictures share one. It need not be proper text."""

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
        return to_rgb(found)


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


def load_rgb(value: Any) -> Image.Image:
    """Returns the RGB picture of what a program holds: a PIL image, a path, encoded bytes, a mapping with ``bytes`` or
    ``path`` as Hugging Face writes it, or a list of one of these.

    Raises `UsageError` for anything else, and `PictureError` for a file that cannot be read.
    """
    if isinstance(value, (list, tuple)):
        if len(value) != 1:
            raise UsageError(f"a row has {len(value)} pictures; give one picture in each row")
        (value,) = value
    if isinstance(value, Mapping):
        value = value.get("path") if value.get("bytes") is None else value["bytes"]
    if isinstance(value, bytes):
        return decode(value, "the picture")
    if isinstance(value, (str, os.PathLike)):
        return FilePicture(value).image()
    if not isinstance(value, Image.Image):
        raise UsageError(
            f"a picture is of type {type(value).__name__}; expected a PIL image, a path, or {{'bytes', 'path'}}"
        )
    return to_rgb(value)


def to_rgb(image: Image.Image) -> Image.Image:
    """Returns a copy in RGB: upright by its EXIF orientation, eight bits a channel, transparency laid on white."""
    with contextlib.suppress(Exception):  # the pixels are good where only their metadata are damaged
        image = ImageOps.exif_transpose(image)
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
    text = " ".join(str(error).split())
    if isinstance(error, Image.DecompressionBombError):
        return f"over {MAX_PIXELS:,} pixels (a decompression bomb?)"
    if isinstance(error, MemoryError):
        return "too large for this machine's memory"
    if "truncated" in text.lower() or "unexpected end" in text.lower():
        return "truncated (the file ends before the picture does)"
    if isinstance(error, PIL.UnidentifiedImageError):
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


# What FFmpeg may open. A list, because it also knows formats that are lists of other files and addresses (HLS, concat).
CONTAINERS = "avi,mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpeg,mpegts,mpegvideo,flv,asf,ogg"
VIDEO_SUFFIXES = frozenset(
    f".{suffix}"
    for suffix in (*("mp4", "m4v", "mov", "avi", "webm", "mkv", "mpg", "mpeg", "wmv", "flv", "3gp", "ogv"),)
)
CLIP_SUFFIXES = VIDEO_SUFFIXES | {".gif"}
# A file with less than this share of the frames that its header counts ends before the clip does.
MIN_FRAME_SHARE = 0.9


class BytesClip(BytesPicture):
    """A clip whose encoded bytes are in memory. ``key`` is the hash of the bytes."""

    __slots__ = ()

    def frames(self, count: int) -> list[Image.Image]:
        """``count`` frames, RGB, evenly over the duration. Raises `PictureError`."""
        if count < 1:
            raise ValueError(f"{count} frames; expected at least 1")
        if not self.data:
            raise PictureError(f"{self.name}: empty file")
        read = _gif_frames if self.data.startswith(b"GIF8") else _video_frames
        return read(self.data, self.name, count)

    def image(self) -> Image.Image:
        """The middle frame."""
        return self.frames(1)[0]


class ClipFile(FilePicture):
    """A clip in a file. As with a picture, it is read on access."""

    __slots__ = ()

    def read(self) -> BytesClip:
        """The file's bytes, read now. Raises `PictureError` for whatever cannot be read."""
        return BytesClip(super().read().data, self.name)

    def frames(self, count: int) -> list[Image.Image]:
        """See `BytesClip.frames`."""
        return self.read().frames(count)


def picture_file(path: str | os.PathLike[str]) -> FilePicture:
    """The file as a clip where its name ends like a clip's (a GIF is one), else as a picture."""
    return ClipFile(path) if Path(path).suffix.lower() in CLIP_SUFFIXES else FilePicture(path)


def picture_in(folder: Path, name: str) -> FilePicture:
    """The picture or clip that a list calls ``name``, as the folder has it.

    A folder may have the name with forward slashes, or with letters such as é composed differently: Macs write two
    characters.
    """
    written = [name, name.replace("\\", "/")]
    if not name.isascii():
        written += [unicodedata.normalize(form, written[1]) for form in ("NFC", "NFD")]
    there = (path for each in written if (path := folder / each).exists()) if written[1] != name or written[2:] else ()
    return picture_file(next(iter(there), folder / written[1]))


def is_clip(picture: Picture) -> bool:
    """Returns whether the picture has frames over time; a scene has only where it is longer than one."""
    return hasattr(picture, "frames") and getattr(picture, "length", 2) > 1


def sample_frames(picture: Any, count: int) -> list[Image.Image]:
    """``count`` frames of a clip, evenly over its time; of a picture that stands still the one."""
    return picture.frames(count) if is_clip(picture) else [picture.image()]


def preview_image(picture: Picture) -> Image.Image:
    """A still for display: the picture itself; for a clip, four frames on one sheet, in reading order."""
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
    """Returns which frames are shown in the middles of ``count`` equal parts of the time from ``starts[0]`` to ``end``.

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
        found.load()  # a file that is cut off ends in half a frame
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
        raise PictureError(f"{name}: a clip; type: pip install 'tellapart[video]'") from None
    try:
        with av.open(io.BytesIO(data), options={"format_whitelist": CONTAINERS}) as container:
            if not container.streams.video:
                raise PictureError(f"{name}: a clip without frames (it holds no video)")
            return _Video.read(container, name).frames(count)
    except (av.error.FFmpegError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise PictureError(f"{name}: not a clip that can be read here, or damaged ({text})") from None


class _Video:
    """The packets of one video stream; frames are decoded from the key frame before them on, and no others."""

    @classmethod
    def read(cls, container: Any, name: str) -> _Video:
        """The packets of the first video stream. Raises `PictureError` where many are missing."""
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        if not packets:
            raise PictureError(f"{name}: a clip without frames")
        if len(packets) < MIN_FRAME_SHARE * stream.frames:
            raise PictureError(
                f"{name}: truncated ({len(packets):,} of the {stream.frames:,} frames that its header counts)"
            )
        check_size(stream.codec_context.width, stream.codec_context.height, name)
        return cls(packets, stream.codec_context, name, avi=container.format.name == "avi")

    def __init__(self, packets: list[Any], decoder: Any, name: str, *, avi: bool) -> None:
        self.name, self.decoder, self.packets = name, decoder, packets
        # AVI times the order of decoding, not of showing, and some streams time nothing: their frames are counted from
        # the start instead, and taken as equally long.
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
        """Time to frame, for these times."""
        found: dict[int, Image.Image] = {}
        keys = [place for place, packet in enumerate(self.packets) if packet.is_keyframe] if self.timed else []
        place, seen = 0, 0
        while wanted:
            key = max((place for place in keys if self.times[place] <= wanted[0]), default=0)
            if key > place:  # the frames in between are not wanted
                self.decoder.flush_buffers()
                place = key
            if place > len(self.packets):
                raise PictureError(f"{self.name}: damaged (the frame at {wanted[0]} cannot be decoded)")
            for frame in self.decoder.decode(self.packets[place] if place < len(self.packets) else None):
                time = frame.pts if self.timed else seen
                seen += 1
                if time in wanted:
                    wanted.remove(time)
                    found[time] = _turned(frame)
            place += 1
        return found


def _turned(frame: Any) -> Image.Image:
    """The frame in RGB, turned as the file says that it is to be seen (clips of a telephone held upright)."""
    image: Image.Image = frame.to_image()
    return image.rotate(frame.rotation, expand=True) if frame.rotation % 360 else image


class PackedPicture(StoredPicture):
    """``inside`` says where in the file."""

    __slots__ = ("_path", "inside")

    def __init__(self, path: Path, inside: str) -> None:
        super().__init__()
        self._path, self.inside = path, inside

    @property
    def name(self) -> str:
        """The file and the place in it."""
        return f"{self._path}#{self.inside}"

    def address(self) -> str:
        """The absolute path and the place; with a double slash, which no path has."""
        return f"{self._path.absolute()}//{self.inside}"

    def signature(self) -> tuple[int, int]:
        """That of the file."""
        return signature_of(self._path, self.name)

    def read(self) -> BytesPicture:
        """The bytes, read now."""
        return BytesPicture(self.data(), self.name)

    @abstractmethod
    def data(self) -> bytes:
        """The encoded bytes. Raises `PictureError`."""


class PackedClip(PackedPicture):
    """A clip that lies in a larger file."""

    __slots__ = ()

    def read(self) -> BytesClip:
        """The bytes, read now."""
        return BytesClip(self.data(), self.name)

    def frames(self, count: int) -> list[Image.Image]:
        """See `tellapart.data.pictures.BytesClip.frames`."""
        return self.read().frames(count)


T = TypeVar("T")
R = TypeVar("R")

MOST_THREADS = 8  # more wait for each other: between calls into C they take turns
MOST_BYTES = 512 << 20


def ahead(
    work: Callable[[T], R],
    things: Iterable[T],
    *,
    buffer: int,
    threads: int | None = None,
    size: Callable[[T], int] = lambda thing: 0,
) -> Generator[R, None, None]:
    """``work`` of each of ``things``, in order; up to ``buffer`` results are ready, or under way, before their turn.

    ``threads``: by default one for each core, at most `MOST_THREADS`. ``size``: of a thing in bytes; no further ones
    are taken while those under way have `MOST_BYTES`. What ``work`` raises is raised where its result would come.
    Closing the iterator, or Ctrl-C, drops what has not begun.
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
