"""Reads text and JSON files: handles encodings and compression, and raises errors that name the file."""

from __future__ import annotations

import gzip
import shlex
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tellapart.errors import UsageError
from tellapart.utils.strict_json import parse_json

MAX_UNPACKED_BYTES = 8 << 30


def refuse_unread(path: Path) -> None:
    """Raises `UsageError` for unsupported file types, such as pickle and zip; the message says how to convert them."""
    if path.suffix.lower() in (".pkl", ".pickle"):
        names = f"{shlex.quote(str(path))} {shlex.quote(str(path.with_suffix('.json')))}"
        raise UsageError(
            f"{path}: pickle files are not supported, because loading one executes its code; if "
            "you trust it, run: python -c 'import json, pickle, sys; "
            'json.dump(pickle.load(open(sys.argv[1], "rb")), open(sys.argv[2], "w"), default=lambda x: x.tolist())\' '
            f"{names}"
        )
    if path.suffix.lower() == ".zip":
        names = f"{shlex.quote(str(path))} -d {shlex.quote(str(path.with_suffix('')))}"
        raise UsageError(f"{path}: archives are not supported; run unzip {names}, and pass the resulting folder")


def plain_suffix(path: Path) -> str:
    """Returns the suffix of a file in lower case, ignoring a final ``.gz``."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def read_bytes(path: Path) -> bytes:
    """Reads a file, decompressing ``.gz``. Raises `OSError` if it is missing, damaged, or too large unpacked."""
    if path.suffix.lower() != ".gz":
        return path.read_bytes()
    with gzip.open(path) as file:
        try:
            data = file.read(MAX_UNPACKED_BYTES + 1)
        except (EOFError, zlib.error) as error:
            raise OSError(f"damaged ({error})") from None
    if len(data) > MAX_UNPACKED_BYTES:
        raise OSError(f"exceeds {MAX_UNPACKED_BYTES >> 30} GiB when decompressed")
    return data


def read_text(path: Path) -> str:
    """Reads a text file (see `decode_text`). Raises a `UsageError` that names the file."""
    with usage_errors(path):
        return decode_text(read_bytes(path))


def read_nonempty(path: Path) -> str:
    """Reads a text file of captions. Raises a `UsageError` that names the file if it is unreadable or empty."""
    text = read_text(path)
    if not text.strip():
        raise UsageError(f"{path}: the file is empty; expected at least one caption")
    return text


UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")  # Excel's "Unicode text", Notepad's "UTF-16"


def decode_text(data: bytes) -> str:
    """Decodes UTF-8, or UTF-16 with a byte order mark, and converts line endings to a line feed.

    Raises UnicodeDecodeError for other encodings, because a wrong guess would change letters.
    """
    text = data.decode("utf-16" if data.startswith(UTF16_MARKS) else "utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")


@contextmanager
def usage_errors(path: Path) -> Iterator[None]:
    """Turns errors in opening or decoding a file into a `UsageError` that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: expected a file, got a folder") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not valid UTF-8 (byte {error.start:,}); convert it to UTF-8") from None
    except ValueError as error:  # NUL in the path
        raise UsageError(f"{path}: cannot be read ({error})") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


def utf8_bytes(text: str) -> bytes:
    """Encodes text as UTF-8, including lone surrogates from file names that are not valid text."""
    return text.encode("utf-8", "surrogatepass")


def read_json(path: Path) -> Any:
    """Reads a JSON file. Raises a `UsageError` that names the file and the line of the error."""
    return parsed_json(read_text(path), str(path))


def parsed_json(text: str, where: str) -> Any:
    """Parses JSON. Raises a `UsageError` whose message begins with ``where``."""
    try:
        return parse_json(text)
    except ValueError as error:
        raise UsageError(f"{where}: invalid JSON ({error})") from None


def is_json_lines(text: str) -> bool:
    """Returns whether the first line is a complete JSON value that is followed by more text."""
    first, _, rest = text.strip().partition("\n")
    try:
        return bool(rest) and isinstance(parse_json(first), dict | list)
    except ValueError:
        return False


def json_lines(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """Yields the location and the value of each line that is not blank. Raises a `UsageError` that names the line."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{path}, line {number}"
            yield where, parsed_json(line, where)
