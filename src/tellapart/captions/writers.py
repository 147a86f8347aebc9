"""Destinations for captions: a file of lines, a text file beside each picture, the log, or standard output.

Complete lines are appended, so a killed process leaves at most one partial line, which the next run removes before it
continues. `tellapart.captions.provenance` records the settings, the pictures, and which captions a person wrote or
edited. These are replaced only on request, after a backup.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tellapart.captions.journal import UNKNOWN, Author, new_run
from tellapart.captions.layouts import ListFile
from tellapart.captions.lines import (
    METADATA,
    CaptionLine,
    Written,
    caption_lines,
    csv_header,
    csv_line,
    json_line,
    name_in,
    text_lines,
)
from tellapart.captions.provenance import (
    JournaledRun,
    OwnFiles,
    PictureRecord,
    Provenance,
    TextRow,
    back_up,
    match_pictures,
    renamed_ids,
)
from tellapart.data.pictures import FilePicture
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.types import Item
from tellapart.utils.atomic_writes import replace_text, temporary_beside, writable_file
from tellapart.utils.listed_names import differing, few
from tellapart.utils.locks import locked
from tellapart.utils.messages import say
from tellapart.utils.write_errors import stdout_errors
from tellapart.utils.write_errors import write_errors as io_errors

CAPTION_FORMATS = ("jsonl", "csv", "txt")
LOG = "log"  # pseudo-format: captions are written to the log, to be turned into texts later
PRINTED = Path("-")  # pseudo-file: standard output
# Settings that are recorded but not compared; the models' weights and the pictures' bytes are compared instead.
SOURCE_KEYS = {"captioner", "captioner_files", "typed_options", "scorer", "scorer_files", "data", "device"}
OF_MODELS = {"captioner_weights", "scorer_weights", "frames", "captioner_options", "captioner_settings"}
PRECISION = "precision"
SYNC_SECONDS = 3.0
NAMED_FILES = 10  # maximum number of files in a message
MAX_LOCKS = 64  # folders; each lock is an open file, and two runs on the same pictures lock the same folders


@dataclass(frozen=True)
class Replace:
    """What may be replaced: texts that tellapart wrote (``own``), texts that a person wrote or edited (``edited``)."""

    own: bool = False
    edited: bool = False


class Writer(Protocol):
    """Destination for captions. ``done``: the ids that already have a caption."""

    done: set[str]

    def write(self, captions: Sequence[Written]) -> None:
        """Appends captions. Raises `TellapartError` if the disk is full."""
        ...

    def close(self) -> None:
        """Flushes to disk and closes the file."""
        ...


def open_writer(
    items: Sequence[Item],
    out: Path | None,
    format: str | None,
    settings: dict[str, Any],
    resume: bool,
    replaces: Replace = Replace(),
) -> Writer:
    """Opens a writer for ``out``. ``format``: None: inferred from the suffix of ``out``."""
    if out is not None and format == LOG:
        return LogWriter.open(out, settings, items, replaces)
    chosen = format_of(out, format)
    samples = 1 if settings["best_of"] else settings["decoding"]["samples"]
    if samples > 1 and out is not None and out.name == METADATA:
        raise UsageError(
            f"-o {out}: this format holds one text per picture, but {samples} were requested; use -o captions.jsonl"
        )
    if out is not None and out.name == METADATA:
        for item in items:
            name_in(item, out.parent)
    if samples > 1 and chosen != "jsonl" and not (out == PRINTED and chosen in ("", "txt")):
        raise UsageError(
            f"writing {samples} captions per picture requires a .jsonl file; use -o "
            "captions.jsonl, or request a single caption"
        )
    if format is not None and format not in CAPTION_FORMATS:
        raise UsageError(f"unknown format '{format}'; expected one of {', '.join(CAPTION_FORMATS)}")
    if out == PRINTED:
        return Printed(chosen or "jsonl", settings.get("best_of") is not None)
    if chosen == "txt":
        if out is not None:
            raise UsageError(
                f"-o {out}: expected a .jsonl or .csv file; to write a .txt file beside each "
                "picture, use --format txt without -o"
            )
        texts = TextFiles.beside(items, replaces, run=new_run("caption", Author.from_settings(settings)))
        texts.lock()
        return texts
    if out is None:
        raise UsageError(
            "missing output file for the captions; use -o captions.jsonl, -o - to print them, or --format txt"
        )
    if chosen not in CAPTION_FORMATS:
        raise UsageError(f"-o {out}: cannot infer the format from this name; expected .jsonl or .csv, or pass --format")
    return LineFile.open(out, chosen, settings, items, resume, replaces)


def format_of(out: Path | None, format: str | None) -> str:
    return format or (out.suffix.lower().lstrip(".") if out else "")


def is_complete(items: Sequence[Item], out: Path | None, format: str | None, request: dict[str, Any]) -> bool:
    """Returns whether all items have a caption from a run with this ``request`` and the same model files."""
    chosen = format_of(out, format)
    if chosen == "txt" and out is None:
        return len(TextFiles.beside(items, Replace(), lambda line: None).done) == len(items)
    if out is None or out == PRINTED or chosen not in ("jsonl", "csv", LOG) or request["captioner_files"] is None:
        return False
    known = Provenance.open(out if chosen != LOG else log_of(out))
    if known.settings is None or same_models(known.settings) != same_models(request):
        return False
    try:
        if chosen == LOG:
            present = {key for key, row in known.rows.items() if row.captions}
        else:
            text = out.read_bytes().decode("utf-8-sig", "surrogateescape")
            present = {line.id for line in caption_lines(text[: text.rfind("\n") + 1], chosen, out)}
        return len(match_pictures(items, known.rows, present, out)[0]) == len(items)
    except (OSError, UsageError):
        return False


def same_models(request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings in which two runs must agree to write the same captions; loads no model.

    Models are compared by their files if these are on disk, otherwise by name; data is compared by its pictures.
    """
    found = {key: value for key, value in request.items() if key not in OF_MODELS | {"data", "device"}}
    for name in ("captioner", "scorer"):
        if found.get(f"{name}_files") is not None:
            found.pop(name, None)
    return found


def recorded_precision(out: Path | None, format: str | None = None) -> str | None:
    """Returns the precision of the run that created this file; None if unknown."""
    if out is None or out == PRINTED:
        return None
    settings = Provenance.open(log_of(out) if format == LOG else out).settings or {}
    return str(settings[PRECISION]) if PRECISION in settings and (format == LOG or out.is_file()) else None


def guard_edited(out: Path, replaces: Replace) -> bool:
    """Raises `UsageError` if a file of captions that will be replaced as a whole contains people's texts.

    If ``replaces.edited`` is set, backs them up and removes the file instead. Returns whether tellapart wrote all texts
    in the file.
    """
    format = format_of(out, None)
    if format not in ("jsonl", "csv") or not out.is_file():
        return False
    known = Provenance.open(out)
    text = out.read_bytes().decode("utf-8-sig", "surrogateescape")
    lines: list[CaptionLine] = []
    try:
        lines = list(caption_lines(text, format, out))
        edited = {line.id: line.text for line in lines if not known.wrote(line.id, line.text)}
    except UsageError:
        edited = {"": text}
    if edited and not replaces.edited:
        raise UsageError(
            f"{out}: {len(edited):,} captions were written or edited by hand; choose another "
            "file, or pass --replace-edited to replace them (a backup is kept)"
        )
    if edited:
        say(f"{out}: replaced {len(edited):,} hand-written texts; the backup is {back_up(out, edited)}")
        out.unlink()
    return not edited and bool(lines)


def _refuse_other_settings(path: Path, known: Provenance, settings: Mapping[str, Any]) -> None:
    if known.settings is None:
        raise UsageError(
            f"{path} already exists and was not written by this command; pass --overwrite "
            "--replace-edited to start it over (a backup is kept), or choose another file"
        )
    ignored = SOURCE_KEYS if "captioner_weights" in settings else SOURCE_KEYS - {"captioner", "scorer"}
    before, now = (
        {key: value for key, value in each.items() if key not in ignored and value is not None}
        for each in (known.settings, _plain(settings))
    )
    if before != now:
        other = ", ".join(differing(before, now))
        raise UsageError(
            f"{path} was started with a different {other or 'setting'}; pass --overwrite to "
            "caption again (hand-written and edited texts are kept), or choose another file"
        )


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings in the form in which they are read back from the log."""
    value: dict[str, Any] = json.loads(json.dumps(settings))
    return value


class Printed:
    """Prints captions to standard output as they are generated: JSON lines, CSV, or only the captions (``txt``)."""

    def __init__(self, format: str, scored: bool) -> None:
        self.done: set[str] = set()
        self._format = format
        if format == "csv":
            with stdout_errors():
                sys.stdout.write(csv_header(scored))

    def write(self, captions: Sequence[Written]) -> None:
        line = {"jsonl": json_line, "csv": csv_line, "txt": text_lines}[self._format]
        with stdout_errors():
            for one in captions:
                sys.stdout.write(line(one))
        self.done.update(one.item.id for one in captions)

    def close(self) -> None:
        """Does nothing."""


def log_of(out: Path) -> Path:
    """Returns the name under which the log stores the captions from which the texts in ``out`` are made."""
    return out.with_name(f"{out.name}#captions")


class LogWriter:
    """Writes captions only to the log, to be turned into alt texts or training captions later."""

    def __init__(self, out: Path, known: Provenance, done: set[str]) -> None:
        self.out, self._known, self.done = out, known, done

    @classmethod
    def open(cls, out: Path, settings: dict[str, Any], items: Sequence[Item], replaces: Replace) -> LogWriter:
        """Starts new captions, or continues those with the same settings. Raises `UsageError` if settings differ."""
        known = Provenance.open(log_of(out))
        if known.settings is None or replaces.own:
            with _write_errors(out):
                known.begin(settings)
            return cls(out, known, set())
        _refuse_other_settings(out, known, settings)
        present = {key for key, row in known.rows.items() if row.captions}
        done, replaced = match_pictures(items, known.rows, present, out)
        if replaced:
            say(f"{out}: {len(replaced):,} pictures have been replaced since and are captioned again")
        return cls(out, known, done)

    def write(self, captions: Sequence[Written]) -> None:
        with _write_errors(self.out):
            self._known.record({one.item.id: TextRow.new(None, one.picture, one.texts) for one in captions})
        self.done.update(one.item.id for one in captions)

    def close(self) -> None:
        """Does nothing."""


def logged_captions(out: Path, items: Sequence[Item]) -> dict[str, list[str]]:
    """Returns the captions that a `LogWriter` wrote for these items, by id."""
    rows = {key: row for key, row in Provenance.open(log_of(out)).rows.items() if row.captions}
    ids = {new: old for old, new in renamed_ids(items, rows).items()}
    keys = {item.id: ids.get(item.id, item.id) for item in items}
    return {id_: list(rows[key].captions) for id_, key in keys.items() if key in rows}


class LineFile:
    """Appends captions to one file, one line per picture."""

    def __init__(self, path: Path, format: str, scored: bool, known: Provenance, file: int) -> None:
        self.path, self.format, self._scored, self._known, self._file = path, format, scored, known, file
        self.done: set[str] = set()
        self._count = 0  # lines in the file
        self._run: JournaledRun | None = None
        self._synced = time.monotonic()

    @classmethod
    def open(
        cls, path: Path, format: str, settings: dict[str, Any], items: Sequence[Item], resume: bool, replaces: Replace
    ) -> LineFile:
        """Starts the file or continues it; removes captions whose pictures have been replaced.

        An empty file, which a killed process may leave behind, is treated as new. Raises `UsageError` if the file must
        not be changed.
        """
        with _write_errors(path):
            real = writable_file(path)
            known, there = Provenance.open(path), path.exists() and real.stat().st_size > 0
        if there and not resume and not replaces.own:
            raise UsageError(f"{path} already exists; pass --overwrite to start it over, or choose another file")
        if there and not replaces.own:
            _refuse_other_settings(path, known, settings)
        elif there and known.settings is None and not replaces.edited:
            raise UsageError(
                f"{path} was not written by this command; also pass --replace-edited to start it "
                "over (a backup is kept), or choose another file"
            )
        with _write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(real, os.O_RDWR | os.O_CREAT, 0o644)
        writer = cls(path, format, settings.get("best_of") is not None, known, file)
        try:
            writer._lock()
            writer._run = new_run("caption", Author.from_settings(settings))
            with _write_errors(path):
                writer._begin(settings, items, replaces)
        except BaseException:
            os.close(writer._file)
            raise
        return writer

    def _begin(self, settings: dict[str, Any], items: Sequence[Item], replaces: Replace) -> None:
        """Rewrites the file without the captions to replace, and finds the pictures that already have a caption."""
        lines, half = self._lines(replaces)
        own = {line.id for line in lines if self._known.wrote(line.id, line.text)}
        edited = {line.id: line.text for line in lines if line.id not in own}
        anew = replaces.own or self._known.settings is None or not lines
        left_out = set[str]()
        if edited and replaces.edited:
            say(
                f"{self.path}: {len(edited):,} captions written or edited by hand will be replaced; "
                f"to restore them, run: {undo_command(self.path)}"
            )
            left_out |= edited.keys()
        if anew:
            left_out |= own
            self.done = edited.keys() - left_out
        else:
            present = {line.id for line in lines} - left_out
            self.done, replaced = match_pictures(items, self._known.rows, present, self.path)
            if replaced - edited.keys():
                say(
                    f"{self.path}: {len(replaced - edited.keys()):,} pictures have been replaced "
                    "since and are captioned again"
                )
            left_out |= replaced - edited.keys()
            self.done |= replaced & edited.keys()
        if edited and not replaces.edited and replaces.own:
            say(
                f"{self.path}: {len(edited):,} captions were written or edited by hand and are kept; "
                "pass --replace-edited to replace them as well"
            )
        kept = [line.line for line in lines if line.id not in left_out]
        if self._run is not None:
            self._known.record_removed({line.id: line.text for line in lines if line.id in left_out}, self._run)
        header = csv_header(self._scored) if self.format == "csv" else ""
        if half or (lines and (anew or left_out)):
            self._rewrite("".join([header, *kept]))
        elif not os.fstat(self._file).st_size:
            os.write(self._file, header.encode())
        if anew:
            self._known.begin(settings)
        self._count = len(kept)

    def _lines(self, replaces: Replace) -> tuple[list[CaptionLine], bool]:
        """Returns the complete lines in the file, and whether it ends with a partial line."""
        text = self.path.read_bytes().decode("utf-8-sig", "surrogateescape")
        whole, half = text[: text.rfind("\n") + 1], text[text.rfind("\n") + 1 :]
        try:
            lines = list(caption_lines(whole, self.format, self.path))
        except UsageError:
            if not replaces.edited:
                raise
            self._back_up({"": text})
            return [], True
        if half:
            header = csv_header(self._scored) if self.format == "csv" else ""
            with contextlib.suppress(UsageError):  # a complete line that an editor saved without a line break
                for line in caption_lines(header + half, self.format, self.path) if whole or not header else ():
                    if self.format == "jsonl" or self._known.wrote(line.id, line.text):
                        lines.append(line)
                    elif not self._known.rows:
                        self._back_up({line.id: line.text})
        return lines, bool(half)

    def _back_up(self, texts: Mapping[str, str]) -> None:
        """Backs up text that is not a valid line in a separate file, because the journal stores only captions."""
        what = "the whole file will be replaced" if "" in texts else "the last line was incomplete"
        say(f"{self.path}: {what}; the backup is {back_up(self.path, texts)}")

    def write(self, captions: Sequence[Written]) -> None:
        """Appends captions. If the disk is full, removes the partial line, so that the run can be resumed."""
        if not captions:
            return
        data = memoryview("".join(self._line(written) for written in captions).encode())
        start = os.lseek(self._file, 0, os.SEEK_END)
        try:
            rows = {one.item.id: TextRow.new("\n".join(one.texts), one.picture) for one in captions}
            self._known.record(rows, self._run)
            while data:
                data = data[os.write(self._file, data) :]
            if time.monotonic() - self._synced > SYNC_SECONDS:
                os.fsync(self._file)
                self._synced = time.monotonic()
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, start)
            kept = f"{self._count:,} captions were saved; free some disk space and run the same command again to resume"
            raise TellapartError(f"{self.path}: {error.strerror}; {kept}") from None
        self._count += len(captions)
        self.done.update(written.item.id for written in captions)

    def close(self) -> None:
        """Flushes to disk; removes the file if it contains no captions."""
        with contextlib.suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)
        if not self._count:
            writable_file(self.path).unlink(missing_ok=True)

    def _rewrite(self, text: str) -> None:
        """Replaces the file with a temporary file that is locked before it is renamed."""
        real = writable_file(self.path)
        temporary = temporary_beside(real)
        try:
            temporary.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
            temporary.chmod(stat.S_IMODE(os.fstat(self._file).st_mode))
            file, self._file = self._file, os.open(temporary, os.O_RDWR)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            os.close(file)
            os.fsync(self._file)
            temporary.replace(real)
        finally:
            temporary.unlink(missing_ok=True)

    def _line(self, written: Written) -> str:
        if self.format == "csv":
            return csv_line(written)
        return json_line(written, self.path.parent if self.path.name == METADATA else None)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self.path.exists() and not os.path.samestat(os.fstat(self._file), self.path.stat()):
                raise BlockingIOError
        except OSError:
            raise UsageError(f"{self.path}: another process is writing to this file; choose another file") from None


class TextFiles:
    """Writes a ``.txt`` file beside each picture, as data set tools expect."""

    def __init__(self, own: OwnFiles, targets: Mapping[str, Path], replaces: Replace, run: JournaledRun | None) -> None:
        self._own, self._targets, self._replaces, self._run = own, targets, replaces, run
        self._people: list[Path] = []  # files in which a person's text has been replaced
        self._locks = contextlib.ExitStack()
        self.done: set[str] = set()

    @classmethod
    def beside(
        cls,
        items: Sequence[Item],
        replaces: Replace,
        say: Callable[[str], None] = say,
        run: JournaledRun | None = None,
    ) -> TextFiles:
        """Finds the pictures whose text file is kept. Raises `UsageError` if a file cannot be written."""
        own = OwnFiles()
        found = cls(own, check_beside(items, ".txt"), replaces, run)
        edited = replaced = 0
        for item in items:
            target = found._targets[item.id]
            if text_of_person(target, own) is not None:
                edited += 1
                found.done |= set() if replaces.edited else {item.id}
            elif target.exists() and not replaces.own:
                known = own.of(target).rows[target.name].picture
                with contextlib.suppress(PictureError):  # reported when it is read
                    if known is not None and not known.is_of(item.picture):
                        replaced += 1
                        continue
                found.done.add(item.id)
        if edited and replaces.own and not replaces.edited:
            say(
                f"{edited:,} .txt files were written or edited by hand and are kept; pass "
                "--replace-edited to replace them as well"
            )
        if replaced:
            say(f"{replaced:,} pictures have been replaced since and are captioned again")
        return found

    def write(self, captions: Sequence[Written]) -> None:
        """Writes one file per caption; each file is either complete or absent."""
        texts = {self._targets[one.item.id]: one.caption + "\n" for one in captions}
        pictures = {self._targets[one.item.id]: one.picture for one in captions}
        edited = write_own(texts, self._own, self._replaces.edited, pictures, self._run)
        self._people += edited if self._replaces.edited else ()
        self.done.update(one.item.id for one in captions)

    def lock(self) -> None:
        """Locks the folders until `close`. Raises `UsageError` if another process is writing to them."""
        folders = sorted({path.parent for path in self._targets.values()})
        with contextlib.ExitStack() as stack:
            for folder in folders[:MAX_LOCKS]:
                stack.enter_context(locked(folder, wait=False, name=".txt.lock"))
            self._locks = stack.pop_all()

    def close(self) -> None:
        """Prints how many texts by people were replaced."""
        self._locks.close()
        if self._people:
            say_replaced(self._people)


def text_of_person(path: Path, own: OwnFiles) -> str | None:
    """Returns the text of a file that a person wrote or edited; None if tellapart wrote it or it does not exist.

    Invalid UTF-8 is decoded with `surrogateescape`.
    """
    text = _text_in(path)
    return None if text is None or own.is_own(path, text) else text


def _text_in(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); fix or remove it") from None


def write_own(
    texts: Mapping[Path, str],
    own: OwnFiles,
    replace_edited: bool,
    pictures: Mapping[Path, PictureRecord | None] | None = None,
    run: JournaledRun | None = None,
) -> dict[Path, str]:
    """Writes each text to its own file; returns people's texts, which are kept unless ``replace_edited`` is set.

    Reads the files again, because a person may have written one during captioning. ``run``: the change that the texts
    belong to, by which they can be undone; None: a new change.
    """
    before = {path: text for path in texts if (text := _text_in(path)) is not None}
    people = {path: text for path, text in before.items() if not own.is_own(path, text)}
    edited = {path: text for path, text in people.items() if text != texts[path]}
    todo = {path: text for path, text in texts.items() if path not in people or (replace_edited and path in edited)}
    if todo:
        with _beside_errors(next(iter(todo))):
            own.record(todo, pictures, run or new_run("write", UNKNOWN), before)
            if edited and replace_edited and run is None:
                say_replaced(edited)
    for path, text in todo.items():
        with _beside_errors(path):
            replace_text(path, text, sync=False)
    return edited


def record_list(
    out: Path, items: Sequence[Item], texts: Mapping[str, str], people: Set[str], run: JournaledRun
) -> None:
    """Records a list of captions in the journal before it is rewritten: its new rows, and the rows that are removed.

    ``texts``: the new texts by id; ``people``: ids of texts that a person wrote and that are kept.
    """
    before: dict[str, str] = {}
    if out.exists():
        with contextlib.suppress(UsageError):  # damaged, so it was backed up as a whole
            before = ListFile(out, items).read([item.id for item in items])
    known = Provenance.open(out)
    known.record_removed({key: text for key, text in before.items() if key not in texts}, run)
    rows = {key: TextRow.new(text) for key, text in texts.items() if key not in people}
    same = {key: row for key, row in rows.items() if before.get(key) == texts[key]}
    known.record({key: row for key, row in rows.items() if key not in same}, run, before)
    known.record({key: row for key, row in same.items() if not known.wrote(key, texts[key])})


def say_replaced(texts: Collection[Path]) -> None:
    """Prints how many texts by people were replaced, and how to restore them."""
    folder = Path(os.path.commonpath([path.parent for path in texts]))
    say(
        f"replaced {len(texts):,} texts that were written or edited by hand; to restore them, run: "
        f"{undo_command(folder)}"
    )


def undo_command(path: Path) -> str:
    """Returns the command that restores what a run replaced in a folder or a file of captions."""
    typed = [str(path)] if path.is_dir() else ["FOLDER", "--captions", str(path)]
    return f"tellapart captions undo {' '.join(map(shlex.quote, typed))}"


def files_beside(items: Iterable[Item], suffix: str) -> dict[str, Path]:
    """Returns, by id, the path of each picture with its suffix replaced.

    Raises `UsageError` if a picture is not a file, or if pictures would share a file; the message lists these pictures.
    """
    pictures: dict[Path, list[str]] = {}
    found = {}
    for item in items:
        if not isinstance(item.picture, FilePicture):
            raise UsageError(
                f"{item.picture.name} is not a file, so a {suffix} file cannot be written beside "
                "it; use -o captions.jsonl"
            )
        target = item.picture.path.with_suffix(suffix)
        pictures.setdefault(target, []).append(item.picture.name)
        found[item.id] = target
    clashes = [f"{' and '.join(names)} would both use {target}" for target, names in pictures.items() if len(names) > 1]
    if clashes:
        raise UsageError(f"{few(clashes, NAMED_FILES, '; ')}; rename one of each pair")
    return found


def check_beside(items: Sequence[Item], suffix: str) -> dict[str, Path]:
    """Like `files_beside`, but also raises a `UsageError` that lists all folders and files that cannot be written."""
    targets = files_beside(items, suffix)
    wrong = [str(folder) for folder in dict.fromkeys(path.parent for path in targets.values())
             if not os.access(folder, os.W_OK)]  # fmt: skip
    wrong += [f"{path} (a folder)" for path in targets.values() if path.is_dir()]
    if wrong:
        raise UsageError(
            f"cannot write {suffix} files in {few(wrong, NAMED_FILES)}; make the folder "
            "writable, or use -o captions.jsonl"
        )
    return targets


def _write_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    return io_errors(path, "specify another file with -o", "free some disk space and run the same command again")


def _beside_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    return io_errors(path, "make the folder writable", "free some disk space and run the same command again")
