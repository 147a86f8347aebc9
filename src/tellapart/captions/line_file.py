"""A file of captions, one line per picture.

Complete lines are appended, so a killed process leaves at most one partial line, which the next run removes before it
continues.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tellapart.captions.authors import Author
from tellapart.captions.backups import back_up
from tellapart.captions.earlier_run import refuse_other_settings
from tellapart.captions.formats import (
    METADATA,
    CaptionLine,
    caption_lines,
    csv_header,
    csv_line,
    csv_row,
    json_line,
    texts_by_id,
)
from tellapart.captions.journal import JournalChange, new_change
from tellapart.captions.log_row import text_fields
from tellapart.captions.picture_matching import match_pictures
from tellapart.captions.provenance import Provenance
from tellapart.captions.replacement import Replace, is_persons
from tellapart.captions.undo_hint import undo_command
from tellapart.captions.written import Written
from tellapart.errors import TellapartError, UsageError
from tellapart.types import Item
from tellapart.utils.atomic_writes import temporary_beside, writable_file
from tellapart.utils.messages import say
from tellapart.utils.write_errors import output_errors

SYNC_SECONDS = 3.0


class LineFile:
    """Appends captions to one file, one line per picture."""

    def __init__(
        self, path: Path, format: str, scored: bool, known: Provenance, file: int, change: JournalChange
    ) -> None:
        self.path, self.format, self._known, self._file, self._change = path, format, known, file, change
        self._header = self._new_header = csv_header(scored) if format == "csv" else ""
        self.done: set[str] = set()
        self._count = 0  # number of lines in the file
        self._synced = time.monotonic()

    @classmethod
    def open(
        cls, path: Path, format: str, settings: dict[str, Any], items: Sequence[Item], resume: bool, replaces: Replace
    ) -> LineFile:
        """Starts or continues the file. Removes captions whose pictures have since been replaced.

        An empty file, which a killed process may leave behind, is treated as new. Raises `UsageError` if the file must
        not be changed.
        """
        with output_errors(path):
            real = writable_file(path)
            known, there = Provenance.open(path), path.exists() and real.stat().st_size > 0
        if there and not resume and not replaces.own:
            raise UsageError(f"{path} already exists; pass --overwrite to start it over, or choose another file")
        if there and not replaces.own:
            refuse_other_settings(path, known, settings)
        elif there and known.settings is None and not replaces.edited:
            raise UsageError(
                f"{path} was not written by this command; also pass --replace-edited to start it "
                "over (a backup is kept), or choose another file"
            )
        with output_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(real, os.O_RDWR | os.O_CREAT, 0o644)
        change = new_change("caption", Author.from_settings(settings))
        writer = cls(path, format, settings.get("best_of") is not None, known, file, change)
        try:
            writer._lock()
            with output_errors(path):
                writer._begin(settings, items, replaces)
        except BaseException:
            os.close(writer._file)
            raise
        return writer

    def _begin(self, settings: dict[str, Any], items: Sequence[Item], replaces: Replace) -> None:
        """Rewrites the file without the captions to replace, and finds the pictures that already have a caption."""
        lines, mend = self._lines(replaces)
        edited = {line.id for line in lines if is_persons(line, self._known, replaces)}
        own = {line.id for line in lines} - edited
        kept = set[str]() if replaces.edited else edited
        if edited and replaces.edited:
            say(
                f"{self.path}: {len(edited):,} captions {replaces.by_hand} by hand will be replaced; "
                f"to restore them, run: {undo_command(self.path)}"
            )
        anew = replaces.own or self._known.settings is None or not lines
        self.done, stale = set(kept), own
        if not anew:
            self.done, replaced = match_pictures(items, self._known.rows, own | kept, self.path)
            self.done |= replaced & kept
            stale = replaced - kept
            if stale:
                say(f"{self.path}: {len(stale):,} pictures have since been replaced and are captioned again")
        self.done |= {item.id for item in items if not replaces.edited and self._known.is_decorative(item.id)}
        if kept and replaces.own:
            say(
                f"{self.path}: {len(kept):,} captions were written, edited or accepted by hand and are kept; "
                "pass --replace-edited to replace them as well"
            )
        left_out = stale | (edited - kept)
        rest = [line.line for line in lines if line.id not in left_out]
        self._known.record_marks(line for line in lines if anew or line.id in left_out)
        self._known.record_removed(texts_by_id(line for line in lines if line.id in left_out), self._change)
        if mend or (lines and (anew or left_out)):
            self._header = self._header if rest else self._new_header
            self._rewrite("".join([self._header, *rest]))
        elif not os.fstat(self._file).st_size:
            os.write(self._file, self._header.encode())
        if anew:
            self._known.begin(settings)
        self._count = len(rest)

    def _lines(self, replaces: Replace) -> tuple[list[CaptionLine], bool]:
        """Returns the complete lines in the file, and whether it has to be rewritten.

        It is rewritten if it ends with a partial line, or if its CSV header lacks the scores. Keeps columns that a
        person added, such as ``accepted``.
        """
        text = self.path.read_bytes().decode("utf-8-sig", "surrogateescape")
        whole, half = text[: text.rfind("\n") + 1], text[text.rfind("\n") + 1 :]
        try:
            lines = list(caption_lines(whole, self.format, self.path))
        except UsageError:
            if not replaces.edited:
                raise
            self._back_up({"": text})
            return [], True
        missing = False
        if whole and self._header:
            columns = next(csv.reader(io.StringIO(whole, newline="")))
            missing = "score" in self._columns() and "score" not in columns
            self._header = csv_row([*columns, *["score"] * missing])
        if half:
            with contextlib.suppress(UsageError):  # a complete line that an editor saved without a line break
                last = caption_lines(self._header + half, self.format, self.path)
                for line in last if whole or not self._header else ():
                    if self.format == "jsonl" or self._known.wrote(line.id, line.text):
                        lines.append(line)
                    elif not any(row.hashes for row in self._known.rows.values()):
                        self._back_up({line.id: line.text})
        return lines, missing or bool(half)

    def _columns(self) -> list[str]:
        return next(csv.reader([self._header]))

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
            rows = {one.item.id: text_fields("\n".join(one.texts), one.picture) for one in captions}
            self._known.record(rows, self._change)
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
        """Flushes the file to disk, and removes it if it contains no captions."""
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
            return csv_line(written, self._columns())
        return json_line(written, self.path.parent if self.path.name == METADATA else None)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self.path.exists() and not os.path.samestat(os.fstat(self._file), self.path.stat()):
                raise BlockingIOError
        except OSError:
            raise UsageError(f"{self.path}: another process is writing to this file; choose another file") from None
