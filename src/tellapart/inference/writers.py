"""Caption writers: JSON lines, CSV, or a text file beside each picture.

Whole lines are appended and flushed, so that a killed run leaves at most a half-written last line, which the
next run cuts off before it goes on. Beside ``captions.jsonl`` lies ``captions.jsonl.settings.json`` with what
made it: a run with other settings does not go on in that file, for its captions would be mixed unseen.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol

from tellapart.data.pictures import CLIP_SUFFIXES, SUFFIXES, FilePicture, StoredPicture, open_image, signature_of
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.types import Item
from tellapart.utils.files import replace_text, temporary_beside, writable_file, write_errors
from tellapart.utils.messages import say
from tellapart.utils.text import for_terminal, parse_json

METADATA = "metadata.jsonl"  # of Hugging Face: a list of the pictures in its folder, by their file names
FORMATS = ("jsonl", "csv", "txt")
PRINTED = Path("-")  # in place of a file: standard output
FILES = {"captioner_files", "scorer_files"}  # settings by which `is_complete` knows the models
OPTIONS = "captioner_options"  # those that its folder has as well
READING = "captioner_settings"  # a hash of its configuration, vocabulary and chat template
NEWER = {OPTIONS, READING}  # 0.1 did not write them down
OF_MODELS = {"captioner_weights", "scorer_weights", "frames", *NEWER}  # settings that only a loaded model has
DEVICE = "device"  # written down, and no setting: a run may go on elsewhere
PRECISION = "precision"
PLAIN = {PRECISION: "fp32"}  # where none is written down: of 0.1, and of servers, which do not say
SYNC_SECONDS = 3.0


@dataclass(frozen=True)
class Written:
    """One picture's caption; with best-of, its score in nats and all that was sampled, best first.

    ``samples``: all captions of the picture where several are wanted, and ``caption`` is the first.
    """

    item: Item
    caption: str
    candidates: tuple[tuple[str, float], ...] = ()
    samples: tuple[str, ...] = ()


class Writer(Protocol):
    """A destination of captions. ``done``: the ids that already have one."""

    done: set[str]

    def write(self, captions: Sequence[Written]) -> None:
        """Append captions. Raises `TellapartError` where the disk is full."""
        ...

    def close(self) -> None:
        """Flush to disk and close the file."""
        ...


def open_writer(
    items: Iterable[Item], out: Path | None, format: str | None, settings: dict[str, Any], resume: bool, overwrite: bool
) -> Writer:
    """The writer for ``out``; its suffix says the format where ``format`` does not."""
    chosen = format or (out.suffix.lower().lstrip(".") if out else "")
    samples = 1 if settings["best_of"] else settings["decoding"]["samples"]
    if samples > 1 and out is not None and out.name == METADATA:
        raise UsageError(f"{out}: has one text of each picture, and {samples} are asked for; type -o captions.jsonl")
    if samples > 1 and chosen != "jsonl" and not (out == PRINTED and chosen in ("", "txt")):
        raise UsageError(
            f"{samples} captions of each picture go to a .jsonl file; type -o captions.jsonl, or ask for one"
        )
    if format is not None and format not in FORMATS:
        raise UsageError(f"unknown format '{format}'; expected one of {', '.join(FORMATS)}")
    if out == PRINTED:
        return Printed(chosen or "jsonl", settings.get("best_of") is not None)
    if chosen == "txt":
        if out is not None:
            raise UsageError(
                f"{out}: captions go to a .jsonl or .csv file; for a .txt beside each picture type "
                "--format txt without -o"
            )
        return TextFiles.beside(items, overwrite)
    if out is None:
        raise UsageError("no file to write captions to; type -o captions.jsonl, -o - to print them, or --format txt")
    if chosen not in FORMATS:
        raise UsageError(f"{out}: cannot tell the format from this name; expected .jsonl or .csv, or type --format")
    return LineFile.open(out, chosen, settings, items, resume, overwrite)


def is_complete(items: Sequence[Item], out: Path | None, format: str | None, request: dict[str, Any]) -> bool:
    """Returns whether every item has its caption, by a run with this ``request`` and the same files of the models."""
    chosen = format or (out.suffix.lower().lstrip(".") if out else "")
    if chosen == "txt" and out is None:
        return len(TextFiles.beside(items, False).done) == len(items)
    if out is None or out == PRINTED or not out.is_file():
        return False
    if chosen not in ("jsonl", "csv") or request["captioner_files"] is None:
        return False
    try:
        before = parse_json(settings_file(out).read_text(encoding="utf-8"))
        done = ids_of(out.read_bytes().decode("utf-8", "replace"), chosen, out)
    except (OSError, ValueError, UsageError):
        return False
    if not isinstance(before, dict):
        return False
    same = PLAIN | {k: v for k, v in before.items() if k not in (*OF_MODELS, DEVICE)}
    if same != plain(request):
        return False
    if not pictures_file(out).is_file() and any(isinstance(item.picture, StoredPicture) for item in items):
        return False
    return all(item.id in done for item in items) and not replaced(items, out, done)


class Printed:
    """Captions on standard output, each as soon as it is there: lines of JSON or CSV, or (``txt``) captions alone."""

    def __init__(self, format: str, scored: bool) -> None:
        self.done: set[str] = set()
        self._format = format
        if format == "csv":
            sys.stdout.write(csv_header(scored))

    def write(self, captions: Sequence[Written]) -> None:
        line = {"jsonl": json_line, "csv": csv_line, "txt": text_lines}[self._format]
        for one in captions:
            sys.stdout.write(line(one))
        sys.stdout.flush()
        self.done.update(one.item.id for one in captions)

    def close(self) -> None:
        """Nothing to close."""


def text_lines(written: Written) -> str:
    """The captions of a picture alone, a line each."""
    texts = written.samples if len(written.samples) > 1 else (written.caption,)
    return "".join(f"{for_terminal(text)}\n" for text in texts)


def csv_header(scored: bool) -> str:
    return "id,caption,score\n" if scored else "id,caption\n"


def csv_line(written: Written) -> str:
    """The line of a picture in a ``.csv`` file."""
    text = io.StringIO()
    score = [f"{written.candidates[0][1]:.6g}"] if written.candidates else []
    csv.writer(text, lineterminator="\n").writerow([_one_line(written.item.id), written.caption, *score])
    return text.getvalue()


def name_in(item: Item, folder: Path) -> str:
    """Returns the path of a picture relative to a folder, with forward slashes. Raises `UsageError` for no file."""
    if not isinstance(item.picture, FilePicture):
        raise UsageError(f"{item.picture.name} is not a file, and metadata.jsonl names files; type -o captions.jsonl")
    return Path(os.path.relpath(item.picture.path, folder)).as_posix()


def json_line(written: Written, folder: Path | None = None) -> str:
    """The line of a picture in a ``.jsonl`` file; with a ``folder`` in its `METADATA`. Raises as `name_in`."""
    record: dict[str, Any] = {"id": written.item.id}
    if folder is not None:
        record |= {"file_name": name_in(written.item, folder), "text": written.caption}
    else:
        record |= {"captions": written.samples} if len(written.samples) > 1 else {"caption": written.caption}
    if written.candidates:
        record["score"] = round(written.candidates[0][1], 6)
        record["candidates"] = [{"caption": text, "score": round(score, 6)} for text, score in written.candidates]
    return json.dumps(record, ensure_ascii=False) + "\n"


def settings_file(path: Path) -> Path:
    return path.with_name(path.name + ".settings.json")


def pictures_file(path: Path) -> Path:
    """Beside captions: of which pictures they are, a line each with its size, time and content."""
    return path.with_name(path.name + ".pictures.jsonl")


def picture_lines(items: Iterable[Item]) -> Iterator[str]:
    """Yields the lines of `pictures_file` for those pictures that lie on disk."""
    for item in items:
        if isinstance(item.picture, StoredPicture):
            with contextlib.suppress(PictureError):  # features from files: no picture is opened
                size, time_ns = item.picture.signature()
                value = {"id": item.id, "size": size, "mtime_ns": time_ns, "content": item.picture.key()}
                yield json.dumps(value) + "\n"


def replaced(items: Iterable[Item], path: Path, done: set[str]) -> set[str]:
    """The ids that are ``done`` and whose picture on disk is not the one that was captioned.

    A file is read only where its size or time is another. None where the pictures of these captions are not recorded.
    """
    known = {}
    with contextlib.suppress(FileNotFoundError), pictures_file(path).open("rb") as file:
        for line in file:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # half a line, of a killed run
                value = parse_json(line.decode())
                known[str(value["id"])] = ((value["size"], value["mtime_ns"]), value["content"])
    found = set()
    for item in items if known else ():
        if item.id in done and isinstance(item.picture, StoredPicture):
            with contextlib.suppress(PictureError):  # gone, or never opened (features from files)
                signature, content = known.get(item.id, (None, None))
                if item.picture.signature() != signature and item.picture.key() != content:
                    found.add(item.id)
    return found


def recorded_precision(out: Path | None) -> str | None:
    """The precision in which the captions of this file were begun; None where none were."""
    if out is None or out == PRINTED or not out.is_file():
        return None
    try:
        before = parse_json(settings_file(out).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(before.get(PRECISION, "fp32")) if isinstance(before, dict) else None


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as they are read back from their file."""
    value: dict[str, Any] = json.loads(json.dumps(settings))
    return value


def ids_of(text: str, format: str, path: Path) -> set[str]:
    """The ids of whole lines of captions; raises `UsageError` for any other line."""
    return {id_ for id_, _ in _records(text, format, path)}


def _records(text: str, format: str, path: Path) -> Iterator[tuple[str, str]]:
    """(id, the text that it takes) of whole captions, a CSV's head left out; raises `UsageError` for any other line."""
    text = text[: text.rfind("\n") + 1]
    lines: Any = csv.reader(io.StringIO(text, newline="")) if format == "csv" else io.StringIO(text, newline="")
    for number, line in enumerate(lines, start=1):
        if format == "csv" and number == 1:
            continue
        try:
            if format == "csv":
                id_, _ = line[:2]
                yield str(id_), _csv_line(line)
            else:
                value = parse_json(line)
                if not isinstance(value.get("caption", value.get("text")), str) and not _texts(value.get("captions")):
                    raise ValueError("no caption")
                yield str(value["id"]), line
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(
                f"{path}, line {number}: not a caption as this command writes them; mend or remove the "
                "line, or type --overwrite"
            ) from None


def _texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


def _csv_line(values: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


class LineFile:
    """Captions appended to one file, a line each."""

    def __init__(self, path: Path, format: str, scored: bool, file: int) -> None:
        self.path, self.format, self._scored, self._file = path, format, scored, file
        self.done: set[str] = set()
        self._settings_file = settings_file(path)
        self._synced = time.monotonic()

    @classmethod
    def open(cls, path: Path, format: str, settings: dict[str, Any], items: Iterable[Item], resume: bool,
             overwrite: bool) -> LineFile:  # fmt: skip
        """Begin the file, or go on with it: captions of pictures that were replaced since are left out of it.

        Raises `UsageError` where that must not be.
        """
        there = path.exists() and not overwrite
        with _write_errors(path):
            writable_file(path)
        if there and not resume:
            raise UsageError(f"{path}: exists; type --overwrite to begin it anew, or name another file")
        if there:
            _same_settings(path, settings)
        with _write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        made: LineFile | None = None
        try:
            made = cls(path, format, settings.get("best_of") is not None, file)
            made._lock()
            with _write_errors(path):
                if not there:
                    os.ftruncate(file, 0)
                    pictures_file(path).unlink(missing_ok=True)
                    replace_text(settings_file(path), json.dumps(settings, indent=1, sort_keys=True) + "\n")
                made._take_up()
                if other := replaced(items, path, made.done):
                    made._leave_out(other)
                    say(f"{path}: {len(other):,} pictures were replaced since; they are captioned again")
                elif (
                    made.done
                    and not pictures_file(path).is_file()
                    and made._record([Written(item, "") for item in items if item.id in made.done])
                ):
                    say(f"{path}: of which pictures it was made was not recorded; only those replaced from now on are "
                        "noticed")  # fmt: skip
        except BaseException:
            os.close(made._file if made is not None else file)
            raise
        return made

    def write(self, captions: Sequence[Written]) -> None:
        """Append captions; on a full disk the partial line is removed, so that the file can be resumed."""
        if not captions:
            return
        with _write_errors(self.path):
            self._record(captions)
        data = memoryview("".join(self._line(written) for written in captions).encode())
        start = os.lseek(self._file, 0, os.SEEK_END)
        try:
            while data:
                data = data[os.write(self._file, data) :]
            if time.monotonic() - self._synced > SYNC_SECONDS:
                os.fsync(self._file)
                self._synced = time.monotonic()
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, start)
            kept = f"{len(self.done):,} captions are kept; free some space and run the same command again to go on"
            raise TellapartError(f"{self.path}: {error.strerror}; {kept}") from None
        self.done.update(written.item.id for written in captions)

    def close(self) -> None:
        """Flush to disk; a file without a single caption is removed."""
        with contextlib.suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)
        if not self.done:
            writable_file(self.path).unlink(missing_ok=True)
            self._settings_file.unlink(missing_ok=True)
            pictures_file(self.path).unlink(missing_ok=True)

    def _record(self, captions: Sequence[Written]) -> bool:
        """Keep of which pictures they are, before the captions, so that none is there without; False for no files."""
        if not any(isinstance(written.item.picture, StoredPicture) for written in captions):
            return False
        lines = picture_lines({written.item.id: written.item for written in captions}.values())
        with pictures_file(self.path).open("a", encoding="utf-8") as file:
            file.writelines(lines)
        return True

    def _leave_out(self, ids: set[str]) -> None:
        """Replace the file by one without these captions, which is locked before it has its name."""
        real, text = writable_file(self.path), self.path.read_bytes().decode("utf-8", "replace")
        kept = "".join(line for id_, line in _records(text, self.format, self.path) if id_ not in ids)
        temporary = temporary_beside(real)
        try:
            temporary.write_text(self._header() + kept, encoding="utf-8", newline="")
            file, self._file = self._file, os.open(temporary, os.O_RDWR)
            os.close(file)
            self._lock()
            os.fsync(self._file)
            temporary.replace(real)
        finally:
            temporary.unlink(missing_ok=True)
        self.done -= ids

    def _line(self, written: Written) -> str:
        if self.format == "csv":
            return csv_line(written)
        return json_line(written, self.path.parent if self.path.name == METADATA else None)

    def _header(self) -> str:
        return csv_header(self._scored) if self.format == "csv" else ""

    def _take_up(self) -> None:
        """Remove a half-written last line and read the ids that are there."""
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole:
            self.done |= ids_of(whole.decode("utf-8", "replace"), self.format, self.path)
        if len(whole) < len(data):
            os.ftruncate(self._file, len(whole))
        if not whole:
            os.write(self._file, self._header().encode())

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # no such locks on this system
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"{self.path}: another process is writing this file; name another one") from None


def _same_settings(path: Path, settings: dict[str, Any]) -> None:
    try:
        before = parse_json(settings_file(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UsageError(
            f"{path}: exists, and {settings_file(path).name}, which would say what made it, does not; "
            "type --overwrite to begin it anew, or name another file"
        ) from None
    found = PLAIN | before if isinstance(before, dict) else {}
    apart = {*FILES, DEVICE} | (NEWER - found.keys())
    now = {key: value for key, value in (PLAIN | plain(settings)).items() if key not in apart}
    old = {key: value for key, value in found.items() if key not in apart}
    if old != now:
        other = ", ".join(key for key in sorted({*old, *now}) if old.get(key) != now.get(key))
        raise UsageError(
            f"{path}: was begun with another {other or 'setting'}; type --overwrite to begin it anew, or "
            "name another file"
        )


class TextFiles:
    """A ``.txt`` beside each picture, as tools for data sets expect it. An existing file is kept
    unless ``overwrite`` is set: a person may have written it."""

    def __init__(self, done: set[str]) -> None:
        self.done = done

    @classmethod
    def beside(cls, items: Iterable[Item], overwrite: bool) -> TextFiles:
        """Raises `UsageError` where two pictures would share a file."""
        done: set[str] = set()
        newer = 0
        items = list(items)
        targets = files_beside(items, ".txt")
        for item in items:
            target = targets[item.id]
            if target.exists() and not overwrite:
                done.add(item.id)
                with contextlib.suppress(PictureError):  # told where it is read
                    newer += target.stat().st_mtime_ns < signature_of(Path(item.picture.name), item.picture.name)[1]
        if newer:
            say(f"{newer:,} pictures are newer than their .txt, which is kept; --overwrite writes it anew")
        return cls(done)

    def write(self, captions: Sequence[Written]) -> None:
        """Each file is whole or not there."""
        for written in captions:
            target = _beside(written.item, ".txt")
            with _write_errors(target):
                replace_text(target, written.caption + "\n", sync=False)
            self.done.add(written.item.id)

    def close(self) -> None:
        """Nothing to close."""


def files_beside(items: Iterable[Item], suffix: str) -> dict[str, Path]:
    """Returns by id the file of each picture's name with another suffix.

    Raises `UsageError` where two pictures would share it, and for pictures that are not files.
    """
    taken: dict[Path, str] = {}
    found = {}
    for item in items:
        target = _beside(item, suffix)
        if target in taken:
            raise UsageError(f"{taken[target]} and {item.picture.name} would share {target}; rename one of them")
        taken[target] = item.picture.name
        found[item.id] = target
    return found


def _beside(item: Item, suffix: str) -> Path:
    if not isinstance(item.picture, FilePicture):
        raise UsageError(f"{item.picture.name} is not a file, so no {suffix} can lie beside it; type -o captions.jsonl")
    return item.picture.path.with_suffix(suffix)


def _readable(name: str) -> str:
    """Returns a name in letters that every file system and reader of tars takes, without its suffix and not too
    long.
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", PurePosixPath(name).stem).strip("-")[:60]


def write_sample(file: BinaryIO, number: int, item: Item, captions: Sequence[str]) -> None:
    """Appends a sample to a tar (WebDataset): the picture as it is in the data, its captions and its id."""
    data, suffix = bytes_of(item)
    key = f"{number:09d}-{_readable(item.id)}"
    texts = {"id": item.id, "captions": list(captions)} | ({"split": item.split} if item.split else {})
    members = [
        (f"{key}{suffix}", data),
        (f"{key}.json", (json.dumps(texts, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")),
    ]
    if all(len(caption.splitlines()) == 1 for caption in captions):  # else a line there would be a part of one
        text = "\n".join(captions) + "\n"
        members.append((f"{key}.txt", text.encode("utf-8", "backslashreplace")))
    for name, content in members:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        file.write(member.tobuf(tarfile.USTAR_FORMAT))
        file.write(content)
        file.write(b"\0" * (-len(content) % tarfile.BLOCKSIZE))


def bytes_of(item: Item) -> tuple[bytes, str]:
    """Returns the encoded picture, and a suffix by which it is read again; one that no file holds becomes a PNG."""
    picture: Any = item.picture
    if hasattr(picture, "read"):
        data = bytes(picture.read().data)
        suffix = PurePosixPath(picture.name.rpartition("#")[2]).suffix.lower()
        return data, suffix if suffix in SUFFIXES | CLIP_SUFFIXES else _suffix_of(data, picture.name)
    made = io.BytesIO()
    picture.image().save(made, "PNG")
    return made.getvalue(), ".png"


def _suffix_of(data: bytes, name: str) -> str:
    """Returns the suffix by the content, where the name says nothing (``photo.jpg?w=300``, ``a.jpg.1``)."""
    with open_image(data, name) as found:
        format = str(found.format)
    return {"JPEG": ".jpg", "MPO": ".jpg", "JPEG2000": ".jp2"}.get(format, f".{format.lower()}")


def end_tar(file: BinaryIO) -> None:
    """Writes what a tar ends with."""
    file.write(b"\0" * (2 * tarfile.BLOCKSIZE))


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise UsageError(f"the id {text!r} has a line break, which CSV cannot keep whole; type -o captions.jsonl")
    return text


def _write_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    return write_errors(path, "name another file with -o", "free some space and run the same command again")
