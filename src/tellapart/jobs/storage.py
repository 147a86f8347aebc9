"""Job folders and data files, on disk or at an fsspec URL (``s3://bucket/folder``).

Writes are atomic. On disk, a temporary file is flushed and then renamed; in an object store, a file is uploaded in one
piece.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.utils.atomic_writes import replace_file, sync_folder
from tellapart.utils.urls import is_url

COPY_BYTES = 1 << 20


class DiskFolder:
    """A folder on disk that all machines in a cluster share. File names may contain slashes."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser()

    def names(self, below: str) -> list[str]:
        """Returns the names of the files in the subfolder ``below``, or an empty list if the subfolder does not exist.

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


def file_system(url: str) -> tuple[Any, str]:
    """Returns fsspec's file system for a URL, and the path within the file system.

    Raises `MissingExtra` if fsspec is not installed, and `UsageError` if the protocol is unknown or its package is not
    installed.
    """
    try:
        import fsspec
    except ImportError:
        raise MissingExtra("ray", f"reading {url}") from None
    try:
        fs, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise UsageError(f"{url}: {' '.join(str(error).split())}") from None
    except ValueError as error:
        raise UsageError(
            f"{url}: {error}; expected s3://, gs://, hf:// or another protocol that fsspec supports"
        ) from None
    return fs, str(path)


@contextlib.contextmanager
def url_errors(url: str) -> Iterator[None]:
    """Turns an object store's errors into one-line errors."""
    try:
        yield
    except FileNotFoundError as error:
        raise UsageError(f"{url}: no such file or folder ({error})") from None
    except TellapartError:
        raise
    except Exception as error:  # stores raise their own errors, such as NoCredentialsError, which is not an OSError
        raise TellapartError(f"{url}: {type(error).__name__}: {' '.join(str(error).split())}") from None
