"""A picture or clip that lies with others in a larger file: a member of a tar, a cell of a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tellapart.data.images.clips import CLIP_SUFFIXES, BytesClip
from tellapart.data.images.pictures import BytesPicture, FilePicture, StoredPicture, signature_of
from tellapart.errors import PictureError, UsageError

if TYPE_CHECKING:
    from PIL import Image


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
        """See `tellapart.data.images.clips.BytesClip.frames`."""
        return self.read().frames(count)


def is_clip(name: str) -> bool:
    """Whether a name ends like a clip's."""
    return Path(name).suffix.lower() in CLIP_SUFFIXES


def cell_bytes(value: Any, folder: Path, name: str) -> bytes:
    """The encoded bytes of a cell: bytes, or ``{"bytes": …, "path": …}``, which may have only one of the two."""
    if isinstance(value, Mapping):
        data, path = value.get("bytes"), value.get("path")
        if data is None and path:
            return FilePicture(folder / path).read().data
        value = data
    if not isinstance(value, bytes):
        raise PictureError(f"{name}: no picture in this row")
    return value


def not_a_picture(kind: str, column: str, spec: str, names: list[str]) -> UsageError:
    """What to say of a column that cannot hold pictures."""
    return UsageError(
        f"{spec}: the column '{column}' holds {kind}, not pictures (bytes, paths or addresses); there are: "
        f"{', '.join(names)}; type image=COLUMN"
    )


def first_line(error: BaseException) -> str:
    """What a library says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]
