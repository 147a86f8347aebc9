"""Sources of pixels: image files, clips, bytes in memory, and pictures inside larger files.

`tellapart.data.decode` decodes the bytes, and `tellapart.data.video` the frames of clips. A bad file raises
`PictureError` with a one-line message, and never any other exception.

Clips are pictures over time, from a video file (extra ``video``) or an animated GIF:

    clip = ClipFile("dog.mp4")
    clip.frames(4)      # four RGB pictures: the middle of each quarter of the clip
    clip.image()        # the middle frame, when a single picture is needed

A clip is a `tellapart.types.Picture`, so code that reads pictures also reads clips.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from tellapart.data.decode import decode, to_rgb
from tellapart.data.file_names import CLIP_SUFFIXES
from tellapart.data.video import gif_frames, video_frames
from tellapart.errors import PictureError, UsageError
from tellapart.types import Picture

MAX_FILE_BYTES = 1 << 30


def content_key(data: bytes) -> str:
    """Returns the 128-bit BLAKE2b hash of the bytes as 32 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class BytesPicture:
    """A picture whose encoded bytes are in memory (an archive member, an upload, a file just read)."""

    __slots__ = ("_key", "data", "name")

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name
        self._key: str | None = None

    @classmethod
    def plain(cls, colour: str, side: int) -> BytesPicture:
        """Creates a square picture in one colour, which is also the picture's name."""
        file = io.BytesIO()
        Image.new("RGB", (side, side), colour).save(file, "PNG")
        return cls(file.getvalue(), colour)

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
    """A picture whose encoded bytes are on disk. They are read on access and not kept in memory.

    To get both the key and the pixels, call `read` once and use its result for both.
    """

    __slots__ = ("_known", "_path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """``path``: the file that contains the bytes."""
        self._path = Path(path)
        self._known: tuple[tuple[int, int], str] | None = None

    @property
    def name(self) -> str:
        """Returns the name used in messages: the path as given."""
        return str(self._path)

    def address(self) -> str:
        """Returns the location of the bytes on this machine, unique per picture: the absolute path. It may contain
        bytes that are not valid UTF-8.
        """
        return str(self._path.absolute())

    def signature(self) -> tuple[int, int]:
        """Returns (size in bytes, modification time in ns) of the file. The content is assumed not to change as long
        as the signature does not.
        """
        return signature_of(self._path, self.name)

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
    """A picture in its own file."""

    __slots__ = ()

    @property
    def path(self) -> Path:
        """Returns the file's path."""
        return self._path

    def read(self) -> BytesPicture:
        """Reads the file's bytes. Raises `PictureError` if that fails."""
        try:
            # O_NONBLOCK, so that a pipe named .jpg is rejected below instead of blocking.
            with open(os.open(self._path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:  # noqa: PTH123
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


class BytesClip(BytesPicture):
    """A clip whose encoded bytes are in memory. ``key`` is the hash of the bytes."""

    __slots__ = ()

    def frames(self, count: int) -> list[Image.Image]:
        """Returns ``count`` RGB frames, evenly spaced over the duration. Raises `PictureError`."""
        if count < 1:
            raise ValueError(f"frames: expected at least 1, got {count}")
        if not self.data:
            raise PictureError(f"{self.name}: empty file")
        read = gif_frames if self.data.startswith(b"GIF8") else video_frames
        return read(self.data, self.name, count)

    def image(self) -> Image.Image:
        """Returns the middle frame."""
        return self.frames(1)[0]


class StoredClip(StoredPicture):
    """A clip whose encoded bytes are on disk. Subclasses combine it with the class of a picture at the same place."""

    __slots__ = ()

    def read(self) -> BytesClip:
        """Reads the bytes. Raises `PictureError` if that fails."""
        return BytesClip(super().read().data, self.name)  # type: ignore[safe-super]

    def frames(self, count: int) -> list[Image.Image]:
        """See `BytesClip.frames`."""
        return self.read().frames(count)


class ClipFile(StoredClip, FilePicture):
    """A clip in its own file."""

    __slots__ = ()


def picture_file(path: str | os.PathLike[str]) -> FilePicture:
    """Returns the file as a clip if it has a clip suffix (including ``.gif``), otherwise as a picture."""
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
    """Returns whether the picture is a sequence of frames. A scene is a clip if its length exceeds one."""
    return hasattr(picture, "frames") and getattr(picture, "length", 2) > 1


def sample_frames(picture: Any, count: int) -> list[Image.Image]:
    """Returns ``count`` frames of a clip, evenly spaced over its duration, or the single frame of a still picture."""
    return picture.frames(count) if is_clip(picture) else [picture.image()]


class PackedPicture(StoredPicture):
    """A picture inside a larger file, such as an archive.

    path: the larger file.
    inside: the position in that file, for messages.
    load: reads the encoded bytes. Its errors become `PictureError`.
    at: distinguishes several pictures with the same ``inside``.
    """

    __slots__ = ("_at", "_inside", "_load")

    def __init__(self, path: Path, inside: str, load: Callable[[], bytes], at: str = "") -> None:
        super().__init__(path)
        self._inside, self._load, self._at = inside, load, at

    @property
    def name(self) -> str:
        """Returns the file's name and the position in the file."""
        return f"{self._path}#{self._inside}"

    def address(self) -> str:
        """Returns the absolute path and the position, separated by a double slash, which no path contains."""
        return "//".join(filter(None, (super().address(), self._inside, self._at)))

    def read(self) -> BytesPicture:
        """Reads the bytes. Raises `PictureError` if that fails."""
        try:
            return BytesPicture(self._load(), self.name)
        except (OSError, ValueError, UsageError, PictureError) as error:
            reason = getattr(error, "strerror", None) or str(error).removeprefix(f"{self._path}: ")
            raise PictureError(f"{self.name}: {reason}") from None


class PackedClip(StoredClip, PackedPicture):
    """A clip inside a larger file."""

    __slots__ = ()
