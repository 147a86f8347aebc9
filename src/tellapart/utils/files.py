"""The files that a command writes under a name that its user typed, all by `write_output`.

One rule for all verbs: a file is replaced if it is empty, or if this program wrote it and nobody changed it since. Any
other file needs ``--overwrite``. An input of the command, a folder and a device are refused with it, too. What this
program wrote is known by size and modification time, kept for each path in ``$TELLAPART_CACHE/outputs``; without that
record (another machine, an emptied cache) ``--overwrite`` is needed again. Files in folders of the program's own (runs,
jobs, studies) are written by `tellapart.utils.io.replace_file` without this rule, and so are those that a command
resumes, which it knows by what lies in or beside them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tellapart.errors import UsageError
from tellapart.utils.io import replace_file, replace_text, writable_file, write_errors

KEPT_RECORDS = 4  # of one path: processes that write it at the same time do not forget each other
_inputs: dict[str, str] = {}  # by real path, the option or argument that names it
_overwrite = False


def cache_folder() -> Path:
    """Returns the folder of what may be deleted: ``$TELLAPART_CACHE``, else ``~/.cache/tellapart``."""
    return Path(os.environ.get("TELLAPART_CACHE") or "~/.cache/tellapart").expanduser()


def set_output_rules(inputs: Iterable[tuple[str, str]] = (), *, overwrite: bool = False) -> None:
    """Declares what a command was given.

    Args:
        inputs: (option or argument, typed value) of what the command reads. A value may be a path or a data set, as
            ``kind:path?key=value``.
        overwrite: whether ``--overwrite`` was typed.
    """
    global _inputs, _overwrite
    _inputs = {os.path.realpath(path): name for name, value in inputs for path in _paths_in(value)}
    _overwrite = overwrite


def _paths_in(value: str) -> set[str]:
    """Returns the names of files that a typed value may hold."""
    path, _, query = value.partition("?")
    names = {value, path, path.partition(":")[2], value.partition("=")[2]} - {""}
    places = {os.path.expanduser(name) for name in names}  # noqa: PTH111
    for given in re.split("[&,]", query):
        key_value = given.partition("=")[2]
        places |= {key_value, *(os.path.join(each, key_value) for each in places)} if key_value else set()  # noqa: PTH118
    return places


def refuse_input(path: Path, option: str = "") -> None:
    """Raises `UsageError` if ``path`` is a file that the command reads, under this or another name."""
    real = os.path.realpath(path)
    name = _inputs.get(real)
    if name is None and path.is_file():  # a hard link, or another case on a file system that ignores it
        inputs = ((Path(each), name) for each, name in _inputs.items())
        name = next((name for each, name in inputs if each.is_file() and each.samefile(real)), None)
    if name is not None and not path.is_dir():
        raise UsageError(f"{option} {path}: is the file of {name} as well; name another file".lstrip())


def refuse_device(value: str, option: str) -> None:
    """Raises `UsageError` for a device that would be read without end, such as ``/dev/zero``."""
    for path in map(Path, _paths_in(value)):
        with contextlib.suppress(OSError, ValueError):  # not a path
            if (path.is_char_device() or path.is_block_device()) and not path.samefile(os.devnull):
                raise UsageError(f"{option} {path}: is a device; name a file")


def input_folder(path: Path) -> Path | None:
    """Returns the folder of the command's inputs that ``path`` is, or lies in."""
    real = Path(os.path.realpath(path))
    return next((each for each in map(Path, _inputs) if real.is_relative_to(each) and each.is_dir()), None)


def check_output(path: Path, *suffixes: str) -> Path:
    """Returns ``path`` if `write_output` may write it; otherwise raises `UsageError`. Call it before slow work.

    Args:
        suffixes: the endings that the name may have, such as ``.html``; any if none are given.
    """
    real = writable_file(path)
    if suffixes and path.suffix.lower() not in suffixes:
        raise UsageError(f"{path}: expected a name that ends in {' or '.join(suffixes)}")
    refuse_input(path)
    if not _overwrite and real.exists() and not is_own_output(real):
        raise UsageError(
            f"{path}: exists, and tellapart did not write it, or somebody changed it since; type --overwrite to "
            "replace it, or name another file"
        )
    return path


def is_own_output(path: Path) -> bool:
    """Returns whether the file is empty, or as `write_output` left it."""
    status = path.stat()
    return not status.st_size or f"{status.st_size} {status.st_mtime_ns}" in _records(_record_file(path))


def write_output(
    path: Path, content: str | Callable[[Path], Any], *, own: bool = False, errors: str = "strict"
) -> None:
    """Writes a file that a user named: checks it (`check_output`), makes its folder, writes aside and renames.

    Args:
        content: UTF-8 text, or a function that writes the file whose path it is given.
        own: whether the name is the program's, in a folder of its own (a run's report): whatever is there is replaced.
        errors: the error handler of `str.encode`.

    Raises:
        UsageError: the file must not be written.
        TellapartError: the system does not let it be written.
    """
    if not own:
        check_output(path)
    record = _record_file(path)

    def write(temporary: Path) -> None:
        if isinstance(content, str):
            temporary.write_text(content, encoding="utf-8", errors=errors, newline="\n")
        else:
            content(temporary)
        status = temporary.stat()
        lines = [*_records(record), f"{status.st_size} {status.st_mtime_ns}"]
        with contextlib.suppress(OSError):  # the next command asks for --overwrite
            record.parent.mkdir(parents=True, exist_ok=True)
            replace_text(record, "".join(f"{line}\n" for line in lines[-KEPT_RECORDS:]), sync=False)

    with write_errors(path, "name another file with -o", "free some space and run the same command again"):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, write)


def check_removable(path: Path) -> None:
    """Raises `UsageError` if there is such a file and `write_output` did not write it, also with ``--overwrite``."""
    if path.is_symlink() or (path.exists() and not (path.is_file() and is_own_output(path))):
        raise UsageError(f"{path}: tellapart did not write it, and it would count as a part of the result; move it "
                         "away, or name another folder")  # fmt: skip


def remove_output(path: Path) -> None:
    """Removes a file of an earlier result, if it is there. Raises `UsageError`, see `check_removable`."""
    check_removable(path)
    path.unlink(missing_ok=True)


def _record_file(path: Path) -> Path:
    name = hashlib.blake2b(os.fsencode(os.path.realpath(path)), digest_size=16).hexdigest()
    return cache_folder() / "outputs" / name


def _records(record: Path) -> list[str]:
    try:
        return record.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
