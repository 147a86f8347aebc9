"""fsspec's file system for a URL (``s3://bucket/folder``), with one-line errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tellapart.errors import MissingExtra, TellapartError, UsageError


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
