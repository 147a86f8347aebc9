"""Folders of jobs and files of data, on disk or behind an fsspec address (``s3://bucket/folder``).

What is written appears whole or not at all: on disk by a temporary name, flushed and renamed; in an object store by one
upload.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.utils.files import is_url, temporary_beside, writable_file

COPY_BYTES = 1 << 20


class DiskFolder:
    """A folder of files by name, on disk, shared by all machines of a cluster; names may have slashes."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser()

    def names(self, below: str) -> list[str]:
        """Returns the names of the files in the folder ``below``, without it; none where it is not there.

        Files that are being written are not among them.
        """
        try:
            with os.scandir(self.path / below) as entries:
                return [entry.name for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file; None where it is not there."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def lines(self, name: str) -> Iterator[bytes]:
        """Yields the lines of a file, one after the other. Raises `UsageError` where it is not there."""
        try:
            with (self.path / name).open("rb") as file:
                yield from file
        except FileNotFoundError:
            raise UsageError(f"{self.path / name}: no such file") from None

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, whole."""
        self._write(writable_file(self.path / name), lambda temporary: temporary.write_bytes(content))

    def put(self, file: Path, name: str) -> None:
        """Brings a local file there, whole; the local one may be gone then.

        A file of the same disk is renamed; of another it is copied beside its place first.
        """
        target = writable_file(self.path / name)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _into_place(file, target)
        except OSError as error:  # two mounts of a disk look like one, so only trying tells
            if error.errno != errno.EXDEV:
                raise
            self._write(target, lambda temporary: shutil.copyfile(file, temporary))

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        (self.path / name).unlink(missing_ok=True)

    def local(self, name: str, scratch: Path) -> Path:
        """Returns a local path of that file: itself, or, of an address, a copy in ``scratch``."""
        return self.path / name

    def _write(self, target: Path, make: Callable[[Path], object]) -> None:
        """Writes under a name that no other process of any machine has, then renames."""
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_beside(target)
        temporary = temporary.with_name(f"{temporary.name}.{uuid.uuid4().hex[:8]}")
        try:
            make(temporary)
            _into_place(temporary, target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def _into_place(file: Path, target: Path) -> None:
    """Flushes a file to disk, gives it its name, and flushes the name."""
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    file.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot
            os.fsync(folder)
    finally:
        os.close(folder)


class UrlFolder:
    """A folder of an object store, or whatever else fsspec reaches. Its methods are those of `DiskFolder`."""

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
    """Returns the folder of a path or an address. Nothing is made yet."""
    return UrlFolder(path) if is_url(path) else DiskFolder(Path(path))


def file_system(url: str) -> tuple[Any, str]:
    """fsspec's file system of an address, and the path in it. Raises `MissingExtra` and `UsageError`."""
    try:
        import fsspec
    except ImportError:
        raise MissingExtra("ray", f"reading {url}") from None
    try:
        fs, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise UsageError(f"{url}: {' '.join(str(error).split())}") from None
    except ValueError as error:
        raise UsageError(f"{url}: {error}; expected s3://, gs://, hf:// or another protocol of fsspec") from None
    return fs, str(path)


@contextlib.contextmanager
def url_errors(url: str) -> Iterator[None]:
    """Turns what an object store says into one line."""
    try:
        yield
    except FileNotFoundError as error:
        raise UsageError(f"{url}: no such file or folder ({error})") from None
    except TellapartError:
        raise
    except Exception as error:  # each store has its own: NoCredentialsError and HttpError are no OSError
        raise TellapartError(f"{url}: {type(error).__name__}: {' '.join(str(error).split())}") from None
