"""Job folders, on disk or at an fsspec URL (``s3://bucket/folder``).

Writes are atomic. On disk, a temporary file is flushed and then renamed; in an object store, a file is uploaded in one
piece.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tellapart.errors import UsageError
from tellapart.jobs.file_systems import file_system, url_errors
from tellapart.utils.atomic_writes import replace_file, sync_folder
from tellapart.utils.urls import is_url

COPY_BYTES = 1 << 20


class DiskFolder:
    """A folder on disk that all machines in a cluster share. File names may contain slashes."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser()

    def names(self, below: str) -> list[str]:
        """Returns the names of the files and folders in the subfolder ``below``, or an empty list if it does not exist.

        Omits files that are still being written.
        """
        try:
            with os.scandir(self.path / below) as entries:
                return [entry.name for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes | None:
        """Returns a file's content, or None if the file does not exist."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def lines(self, name: str) -> Iterator[bytes]:
        """Yields a file's lines. Raises `UsageError` if the file does not exist."""
        try:
            with (self.path / name).open("rb") as file:
                yield from file
        except FileNotFoundError:
            raise UsageError(f"{self.path / name}: no such file") from None

    def write(self, name: str, content: bytes) -> None:
        """Writes a file atomically."""
        self._put(name, lambda temporary: temporary.write_bytes(content))

    def put(self, file: Path, name: str) -> None:
        """Moves a local file into the folder atomically, from another disk as well."""
        self._put(name, lambda temporary: shutil.move(file, temporary))

    def remove(self, name: str) -> None:
        """Removes a file if it exists."""
        (self.path / name).unlink(missing_ok=True)

    def local(self, name: str, scratch: Path) -> Path:
        """Returns a local path to a file. For a URL, this is the path of a copy in ``scratch``."""
        return self.path / name

    def _put(self, name: str, write: Callable[[Path], object]) -> None:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, write)
        sync_folder(target.parent)


class UrlFolder:
    """A folder in an object store or any other fsspec file system, with the same methods as `DiskFolder`."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._fs, self._root = file_system(self._url)

    def names(self, below: str) -> list[str]:
        self._fs.invalidate_cache()
        with url_errors(self._url):
            try:
                return [str(path).rstrip("/").rpartition("/")[2] for path in self._fs.ls(self._at(below), detail=False)]
            except FileNotFoundError:
                return []

    def read(self, name: str) -> bytes | None:
        with url_errors(self._url):
            try:
                return bytes(self._fs.cat_file(self._at(name)))
            except FileNotFoundError:
                return None

    def lines(self, name: str) -> Iterator[bytes]:
        with url_errors(self._url), self._fs.open(self._at(name), "rb", block_size=COPY_BYTES) as file:
            yield from file

    def write(self, name: str, content: bytes) -> None:
        with url_errors(self._url):
            self._fs.pipe_file(self._at(name), content)

    def put(self, file: Path, name: str) -> None:
        with url_errors(self._url):
            self._fs.put_file(str(file), self._at(name))

    def remove(self, name: str) -> None:
        with url_errors(self._url), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._at(name))

    def local(self, name: str, scratch: Path) -> Path:
        target = scratch / Path(name).name
        with url_errors(self._url):
            self._fs.get_file(self._at(name), str(target))
        return target

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")


Folder = DiskFolder | UrlFolder


def open_folder(path: str) -> Folder:
    """Opens the folder at a path or URL. Does not create the folder."""
    return UrlFolder(path) if is_url(path) else DiskFolder(Path(path))
