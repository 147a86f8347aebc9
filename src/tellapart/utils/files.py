"""Writes the files that users name on the command line (`write_output`), and other helpers for files.

All commands follow one rule: a file is replaced if it is empty, or if tellapart wrote it and it has not changed since.
Replacing any other file requires ``--overwrite``. Input files, folders and devices are never replaced. tellapart
recognizes its own files by size and modification time, which are recorded per path in ``$TELLAPART_CACHE/outputs`` and
in the folder of a job; without this record (on another machine, or after emptying the cache), ``--overwrite`` is
required again. The rule does not apply to files in tellapart's own folders (runs, jobs, studies), which `replace_file`
writes, nor to the captions that people edit and commands resume (caption, alt-text, lora and boost), which are
recognized by their content.

The module also provides atomic writes, one-line file system errors, locks that name their owner, and checksums of
weights. A lock is a kernel lock (``flock``) on a hidden file in the folder, so a killed process leaves no lock behind.
The file names the holder's process and host for other processes. On network file systems that forward ``flock`` (NFS
since Linux 2.6.12), it also works between hosts. Checksums are stored in a file for ``sha256sum -c SHA256SUMS``. Paths
are never normalized.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import glob
import hashlib
import json
import mimetypes
import os
import re
import shutil
import socket
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tellapart.errors import TellapartError, UsageError
from tellapart.utils.messages import say

KEPT_RECORDS = 4  # per path, so that concurrent writers keep each other's records
_inputs: dict[str, str] = {}  # real path to the option or argument that names it
_overwrite = False
_record_folders: list[Path] = []  # in addition to the one in the cache


def cache_folder() -> Path:
    """Returns the cache folder, which may be deleted: ``$TELLAPART_CACHE``, or ``~/.cache/tellapart``."""
    return Path(os.environ.get("TELLAPART_CACHE") or "~/.cache/tellapart").expanduser()


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
    """Returns whether the suffix is that of a picture or clip, or the file is the text of one."""
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
    """Returns the input folder that ``path`` is in or is itself; None if there is none."""
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
        own: whether tellapart chose the name, in one of its own folders (such as a run's report). Then any file is
            replaced.
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

    with write_errors(path, "specify another file with -o", "free some disk space and run the same command again"):
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
    """Removes a file of an earlier result if it exists. Raises `UsageError` like `check_removable`."""
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


@contextlib.contextmanager
def write_errors(path: Path, remedy: str, when_full: str | None = None) -> Iterator[None]:
    """Turns an `OSError` into a one-line `TellapartError` with the path, the cause, and ``remedy``.

    ``when_full`` replaces ``remedy`` if the disk or the quota is full.
    """
    try:
        yield
    except OSError as error:
        full = when_full is not None and error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise TellapartError(f"{path}: {error.strerror or error}; {when_full if full else remedy}") from None


def writable_file(path: Path) -> Path:
    """Returns the path to write to, with symbolic links resolved.

    Raises `UsageError` for a folder, device, pipe or socket, which an atomic write would replace.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # a new file, or a dangling link
        return path.resolve() if path.is_symlink() else path
    except OSError as error:
        raise TellapartError(f"{path} cannot be written ({error.strerror or error}); choose another file") from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path} is a folder; specify a file such as {path / 'result'}")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is a device, pipe or socket; specify a regular file")
    return path.resolve() if path.is_symlink() else path


def replace_text(path: Path, text: str, *, sync: bool = True, errors: str = "strict") -> None:
    """Writes UTF-8 text atomically (see `replace_file`). ``errors``: the error handler of `str.encode`."""
    replace_file(path, lambda new: new.write_text(text, encoding="utf-8", errors=errors, newline="\n"), sync=sync)


def replace_file(path: Path, write: Callable[[Path], Any], *, sync: bool = True) -> None:
    """Writes a file atomically: readers see either the old or the new content, never part of it.

    ``write`` creates a temporary file beside ``path``, which is flushed to disk (unless ``sync`` is False, for very
    many files) and renamed. Follows symbolic links and keeps the mode of an existing file. Raises `OSError`; see
    `write_errors` and `writable_file`.
    """
    path = writable_file(path)
    temporary = temporary_beside(path)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    try:
        if mode is not None:  # before it has any content
            temporary.touch()
            temporary.chmod(mode | stat.S_IWUSR)
        write(temporary)
        if mode is not None:
            temporary.chmod(mode)
        if sync:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # e.g. a full disk or a ulimit; the system's error names no file
            error.filename = str(path)
        raise
    finally:
        with contextlib.suppress(OSError):  # report the first error
            temporary.unlink(missing_ok=True)


def temporary_beside(path: Path) -> Path:
    """Returns a hidden temporary name, of valid length, for a file or folder that will be renamed to ``path``.

    Removes files that killed processes left under such names in the same folder.
    """
    _remove_left(path.parent.absolute())
    begins = os.fsdecode(os.fsencode(path.name)[:200])
    return path.with_name(f".{begins}.{_here()}.{os.getpid()}")


@functools.cache
def _here() -> str:
    """Returns 8 hexadecimal digits that identify this host and container, within which process ids are unique."""
    container = ""
    with contextlib.suppress(OSError):
        container = str(Path("/proc/self/ns/pid").stat().st_ino)
    return f"{zlib.crc32(f'{socket.gethostname()} {container}'.encode()):08x}"


@functools.cache
def _remove_left(folder: Path) -> None:
    """Removes files that killed processes of this host left in a folder; once per process, because folders may be
    large.
    """
    left = re.compile(rf"\..+\.{_here()}\.(\d+)(\.[0-9a-f]{{8}})?", re.DOTALL)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if (named := left.fullmatch(entry.name)) and not _is_running(int(named[1])):
                with contextlib.suppress(OSError):
                    shutil.rmtree(entry) if entry.is_dir(follow_symlinks=False) else Path(entry).unlink()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def readable_weights(folder: Path) -> None:
    """Gives the safetensors files in and below ``folder`` the mode of a new file (644 with the usual umask).

    safetensors makes its files readable by the owner only. The mode is taken from a temporary file, because reading the
    umask would change it for all threads.
    """
    probe = temporary_beside(folder / "mode")
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for file in folder.rglob("*.safetensors"):
        file.chmod(mode)


LOCK = ".lock"
LOCK_BEGINS = b'{"process": '
POLL_SECONDS = 0.5
MOMENT_SECONDS = 2.0


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool, name: str = LOCK) -> Iterator[None]:
    """Locks ``folder`` for this process. Creates it if necessary, and removes it again if it is still empty and unused.

    If another process holds the lock, names that process and waits (``wait``), or raises a `UsageError` that names it.
    ``name``: name of the lock file, to lock only part of the folder.
    """
    folders_made = missing_folders(folder)
    file = _acquired(folder, wait, name)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)
        os.close(file)
        with contextlib.suppress(OSError):  # not empty
            for each in folders_made:
                each.rmdir()


def lock_or_say(file: int, path: Path) -> None:
    """Locks an open file. If this takes more than a moment, prints which processes are using it."""
    with contextlib.suppress(BlockingIOError, PermissionError):
        return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    notice = threading.Timer(
        MOMENT_SECONDS, lambda: say(f"waiting for the lock on {path}, which is in use by {processes_using(path)}")
    )
    notice.daemon = True
    notice.start()
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    finally:
        notice.cancel()


def processes_using(path: Path) -> str:
    """Returns the other processes on this machine that have a file open, as ``process 123 (tellapart boost …)``."""
    processes, real = [], str(path.resolve())
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            opened = {str(link.readlink()) for link in (folder / "fd").iterdir()}
            if real in opened and folder.name != str(os.getpid()):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                processes.append(f"process {folder.name} ({' '.join(command.split())[:80]})")
    return ", ".join(processes) or "another process"


def missing_folders(folder: Path) -> list[Path]:
    """Returns ``folder`` and its parents that do not exist, innermost first."""
    folders = []
    for each in (folder, *folder.parents):
        if each.exists():
            break
        folders.append(each)
    return folders


def lock_holder(folder: Path, name: str = LOCK) -> str:
    """Returns the owner of this folder's lock, as ``process 123 on host a``."""
    try:
        owner = json.loads((folder / name).read_text(encoding="utf-8"))
        return f"process {owner['process']} on host {owner['host']}, since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # the owner has just taken or released the lock
        return "another process"


def _acquired(folder: Path, wait: bool, name: str) -> int:
    announced = False
    while True:
        if (file := _attempt(folder / name)) is not None:
            return file
        if not wait:
            raise UsageError(
                f"{folder} is in use by {lock_holder(folder, name)}; wait for it to finish, or "
                "choose another folder with --out"
            )
        if not announced:
            say(f"waiting for {folder}, which is in use by {lock_holder(folder, name)}")
            announced = True
        time.sleep(POLL_SECONDS)


def _attempt(path: Path) -> int | None:
    """Tries to take the lock. Returns the open file; None if another process holds it."""
    while True:
        file = _opened(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOTSUP):
                say(
                    f"{path.parent}: this file system does not support locks; make sure that no other "
                    "process uses this folder"
                )
                return file
            os.close(file)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise
        if _is_file(file, path):
            break
        os.close(file)  # its last holder removed it after it was opened here
    if (head := os.pread(file, len(LOCK_BEGINS), 0)) and head != LOCK_BEGINS:
        os.close(file)
        raise UsageError(f"{path} is not the lock of this folder; move this file, or choose another folder with --out")
    owner = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(owner).encode(), 0)
    return file


def _opened(path: Path) -> int:
    """Opens the lock's file and creates its folder; the last holder may remove both at any moment."""
    attempts = 0
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except (FileExistsError, FileNotFoundError):  # changed meanwhile, or a file in place of the folder
            attempts += 1
            if attempts == 100:
                raise


def _is_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


SUMS = "SHA256SUMS"
CHANGED = "copy the folder again, or remove {sums} if you changed the file yourself"


def write_sums(folder: Path) -> None:
    """Writes the checksums of all files in ``folder``, replacing earlier ones.

    Skips files that are not part of a model: hidden files and the model card. The first line (a comment for
    ``sha256sum``) contains the number of lines, so that missing lines are detected.
    """
    lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(_listed(folder))]
    (folder / SUMS).write_text("".join([f"# {len(lines)} files\n", *lines]), encoding="utf-8")


def check_sums(folder: Path, remedy: str = CHANGED, *, all_files: bool = False) -> None:
    """Verifies the checksums of a folder; a folder without checksums (from the hub or version 0.1) passes.

    ``all_files``: whether to require a checksum for every file. Raises `TellapartError`, with ``remedy``, for a changed
    file, a missing line, or unreadable checksums.
    """
    sums = folder / SUMS
    remedy = remedy.format(sums=sums)
    if not sums.is_file():
        if all_files:
            raise TellapartError(f"{sums} is missing; {remedy}")
        return
    lines = sums.read_bytes().decode("utf-8", "replace").splitlines()
    head = re.fullmatch(r"# (\d+) files", lines[0]) if lines else None  # earlier versions wrote no header
    named = {name: expected for expected, _, name in (line.partition("  ") for line in lines[1 if head else 0 :])}
    if not named or (head and len(named) != int(head[1])):
        raise TellapartError(f"{sums} is damaged ({len(named)} of {head[1] if head else 'its'} lines); {remedy}")
    for name, expected in named.items():
        if len(expected) != 64 or not name or "/" in name:
            raise TellapartError(f"{sums} is damaged; {remedy}")
        file = folder / name
        if not file.is_file():
            raise TellapartError(f"{file} is missing, but is listed in {SUMS}; {remedy}")
        if sha256(file) != expected:
            raise TellapartError(f"{file} is damaged: its SHA-256 differs from that in {SUMS}; {remedy}")
    if all_files and (more := [file.name for file in _listed(folder) if file.name not in named]):
        raise TellapartError(f"{folder / more[0]} is not listed in {SUMS}, which is damaged; {remedy}")


def _listed(folder: Path) -> list[Path]:
    unlisted = (SUMS, "README.md")
    return [file for file in folder.iterdir() if file.is_file() and file.name not in unlisted and file.name[0] != "."]


def sha256(file: Path) -> str:
    """Returns the SHA-256 of a file's bytes in hexadecimal, cached by size and modification time."""
    status = file.stat()
    return _sha256(file.absolute(), status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _sha256(file: Path, size: int, changed_ns: int) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_url(path: str) -> bool:
    """Returns whether ``path`` is a URL such as ``s3://bucket/name``."""
    return ADDRESS.match(path) is not None


_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # not allowed in the id of a path


def path_id(path: str) -> str:
    """Returns the id of a file: its path, percent-encoded as in a URL if it is not valid text.

    Encodes invalid UTF-8 and control characters, and in such a path also ``%``, as ``%XX``. The id can be written to
    any file. Two files have the same id only if one path literally contains the other's encoding. ``path``: a result of
    `os.fsdecode`.
    """
    if not _NO_TEXT.search(path):
        return path
    return re.sub(f"%|{_NO_TEXT.pattern}", _percent, path)


def _percent(match: re.Match[str]) -> str:
    char, code = match[0], ord(match[0])
    escaped = bytes([code - 0xDC00]) if 0xDC80 <= code <= 0xDCFF else char.encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in escaped)
