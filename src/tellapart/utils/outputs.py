"""Writes the files that users name on the command line (`write_output`).

All commands follow one rule: a file is replaced if it is empty, or if tellapart wrote it and it has not changed since.
Replacing any other file requires ``--overwrite``. Input files, folders and devices are never replaced. tellapart
recognizes its own files by size and modification time, which are recorded per path in ``$TELLAPART_CACHE/outputs`` and
in the folder of a job; without this record (on another machine, or after emptying the cache), ``--overwrite`` is
required again. The rule does not apply to files in tellapart's own folders (runs, jobs, studies), which `replace_file`
writes, nor to the captions that people edit and commands resume (caption, alt-text, lora and boost), which are
recognized by their content.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import mimetypes
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tellapart.errors import UsageError
from tellapart.utils.atomic_writes import replace_file, replace_text, writable_file
from tellapart.utils.cache_folder import cache_folder
from tellapart.utils.write_errors import output_errors

KEPT_RECORDS = 4  # per path, so that concurrent writers keep each other's records
_inputs: dict[str, str] = {}  # real path to the option or argument that names it
_overwrite = False
_record_folders: list[Path] = []  # in addition to the folder in the cache


def set_output_rules(inputs: Iterable[tuple[str, str]] = (), *, overwrite: bool = False) -> None:
    """Declares the inputs and the overwrite option of a command.

    Args:
        inputs: (option or argument, value) for each input, as typed. A value is a path or a data set such as
            ``kind:path?key=value``.
        overwrite: whether ``--overwrite`` was given.
    """
    global _inputs, _overwrite
    _inputs = {os.path.realpath(path): name for name, value in inputs for path in paths_in(value)}
    _overwrite = overwrite


def paths_in(value: str) -> set[str]:
    """Returns the file names that a command-line value may contain."""
    path, _, query = value.partition("?")
    names = {value, path, path.partition(":")[2], value.partition("=")[2]} - {""}
    places = {os.path.expanduser(name) for name in names}  # noqa: PTH111
    for given in re.split("[&,]", query):
        key_value = given.partition("=")[2]
        places |= {key_value, *(os.path.join(each, key_value) for each in places)} if key_value else set()  # noqa: PTH118
    return places


def refuse_input(path: Path, option: str = "") -> None:
    """Raises `UsageError` if ``path`` is an input of the command: a file that was passed (even under another name), or
    a picture or its text file in an input folder.
    """
    real = os.path.realpath(path)
    name = _inputs.get(real)
    if name is None and path.is_file():  # a hard link, or different case on a case-insensitive file system
        inputs = ((Path(each), name) for each, name in _inputs.items())
        name = next((name for each, name in inputs if each.is_file() and each.samefile(real)), None)
    if name is not None and not path.is_dir():
        raise UsageError(f"{option} {path} is also used as {name}; choose another file".lstrip())
    if path.is_file() and (folder := input_folder(path)) is not None and _is_read_in_folders(path):
        raise UsageError(
            f"{option} {path} is a picture or its text file in the input folder {folder}; choose another file".lstrip()
        )


def _is_read_in_folders(path: Path) -> bool:
    """Returns whether the file is a picture or clip, according to its suffix, or the text file of one."""
    if path.suffix.lower() in (".txt", ".caption"):
        others = (path.with_suffix(""), *path.parent.glob(f"{glob.escape(path.stem)}.*"))
        return any(_is_read_in_folders(other) for other in others if other.suffix != path.suffix and other.is_file())
    return str(mimetypes.guess_type(path.name)[0]).startswith(("image/", "video/"))


def refuse_device(value: str, option: str) -> None:
    """Raises `UsageError` for a device that never ends, such as ``/dev/zero``."""
    for path in map(Path, paths_in(value)):
        with contextlib.suppress(OSError, ValueError):  # not a path
            if (path.is_char_device() or path.is_block_device()) and not path.samefile(os.devnull):
                raise UsageError(f"{option} {path}: expected a file, got a device")


def input_folder(path: Path) -> Path | None:
    """Returns the input folder that is or contains ``path``, or None if there is none."""
    real = Path(os.path.realpath(path))
    return next((each for each in map(Path, _inputs) if real.is_relative_to(each) and each.is_dir()), None)


def check_output(path: Path, *suffixes: str) -> Path:
    """Returns ``path`` if `write_output` may write it; otherwise raises `UsageError`. Call it before slow work.

    Args:
        suffixes: the allowed suffixes, such as ``.html``; if none are given, all are allowed.
    """
    real = writable_file(path)
    if suffixes and path.suffix.lower() not in suffixes:
        raise UsageError(f"{path}: expected a name that ends in {' or '.join(suffixes)}")
    refuse_input(path)
    if not _overwrite and real.exists() and not is_own_output(real):
        raise UsageError(
            f"{path} already exists, and was not written by tellapart or has been edited since; "
            "pass --overwrite to replace it, or choose another file"
        )
    return path


def is_own_output(path: Path) -> bool:
    """Returns whether the file is empty or unchanged since `write_output` wrote it."""
    status = path.stat()
    known = f"{status.st_size} {status.st_mtime_ns}"
    return not status.st_size or any(known in _records(record) for record in _record_files(path))


def write_output(
    path: Path, content: str | Callable[[Path], Any], *, own: bool = False, errors: str = "strict"
) -> None:
    """Writes an output file that the user named, after `check_output`: creates its folder, and writes it atomically.

    Args:
        content: UTF-8 text, or a function that writes the file at a given path.
        own: whether tellapart chose the name, in one of its own folders (such as a run's report). In that case, any
            existing file is replaced.
        errors: the error handler of `str.encode`.

    Raises:
        UsageError: if the file must not be replaced.
        TellapartError: if the file cannot be written.
    """
    if not own:
        check_output(path)

    def write(temporary: Path) -> None:
        if isinstance(content, str):
            temporary.write_text(content, encoding="utf-8", errors=errors, newline="\n")
        else:
            content(temporary)
        status = temporary.stat()
        for record in _record_files(path):
            lines = [*_records(record), f"{status.st_size} {status.st_mtime_ns}"]
            with contextlib.suppress(OSError):  # the next command then requires --overwrite
                record.parent.mkdir(parents=True, exist_ok=True)
                replace_text(record, "".join(f"{line}\n" for line in lines[-KEPT_RECORDS:]), sync=False)

    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, write)


def check_removable(path: Path) -> None:
    """Raises `UsageError`, even with ``--overwrite``, if the file exists and was not written by `write_output`."""
    if path.is_symlink() or (path.exists() and not (path.is_file() and is_own_output(path))):
        raise UsageError(
            f"{path} was not written by tellapart, but would count as part of the result; move it "
            "elsewhere, or choose another folder"
        )


def remove_output(path: Path) -> None:
    """Removes the file of an earlier result, if there is one.

    Raises `UsageError` in the same cases as `check_removable`.
    """
    check_removable(path)
    path.unlink(missing_ok=True)


def _record_files(path: Path) -> list[Path]:
    name = hashlib.blake2b(os.fsencode(os.path.realpath(path)), digest_size=16).hexdigest()
    return [folder / name for folder in (cache_folder() / "outputs", *_record_folders)]


@contextlib.contextmanager
def outputs_recorded_in(folder: Path) -> Iterator[None]:
    """Within the context, also records in ``folder`` which files tellapart writes, in case the cache is emptied."""
    _record_folders.append(folder)
    try:
        yield
    finally:
        _record_folders.remove(folder)


def _records(record: Path) -> list[str]:
    try:
        return record.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
