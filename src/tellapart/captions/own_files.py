"""Keeps track of the text files that tellapart wrote next to pictures."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tellapart.captions.backups import back_up
from tellapart.captions.journal import JournalChange
from tellapart.captions.log_row import text_fields
from tellapart.captions.picture_record import PictureRecord
from tellapart.captions.provenance import Provenance
from tellapart.captions.text_hash import text_hash


class OwnFiles:
    """Tracks the text files that tellapart wrote next to pictures, in any number of folders."""

    def __init__(self) -> None:
        self._logs: dict[Path, Provenance] = {}
        self._listed: dict[Path, set[str]] = {}  # hashes of tellapart's texts in each folder's metadata.jsonl

    def of(self, path: Path) -> Provenance:
        """Returns the log for all files with the same folder and suffix as ``path``."""
        return self._log(path.with_name(f"*{path.suffix.lower()}"))

    def _log(self, captions: Path) -> Provenance:
        if captions not in self._logs:
            self._logs[captions] = Provenance.open(captions)
        return self._logs[captions]

    def refresh(self, paths: Iterable[Path]) -> None:
        """Reads what other processes have recorded about these files since."""
        for log, _ in self._by_log(paths):
            log.refresh()

    def is_own(self, path: Path, text: str) -> bool:
        """Returns whether tellapart wrote this text to this file."""
        return self.of(path).wrote(path.name, text)

    def are_own(self, picture: Path, texts: Sequence[str]) -> bool:
        """Returns whether tellapart wrote these texts for a picture.

        Looks in the files next to the picture and in the ``metadata.jsonl`` of its parent folders.
        """
        said = {" ".join(text.split()) for text in texts}
        for path in (picture.with_suffix(".txt"), picture.with_suffix(".caption")):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                text = path.read_text(encoding="utf-8")
                if said <= {" ".join(part.split()) for part in (text, *text.split("\n"))}:
                    return self.is_own(path, text)
        hashes = {text_hash(text) for text in ("\n".join(texts), *texts)}
        return any(not hashes.isdisjoint(self._hashes_in(folder)) for folder in picture.parents)

    def _hashes_in(self, folder: Path) -> set[str]:
        if folder not in self._listed:
            rows = self._log(folder / "metadata.jsonl").rows.values()
            self._listed[folder] = {hash_ for row in rows for hash_ in row.hashes}
        return self._listed[folder]

    def record(
        self,
        texts: Mapping[Path, str],
        pictures: Mapping[Path, PictureRecord | None] | None = None,
        change: JournalChange | None = None,
        before: Mapping[Path, str] | None = None,
    ) -> None:
        """Records texts that are about to be written, with their pictures (see `Provenance`)."""
        for log, paths in self._by_log(texts):
            rows = {path.name: text_fields(texts[path], (pictures or {}).get(path)) for path in paths}
            log.record(rows, change, {path.name: before[path] for path in paths if path in before} if before else None)

    def back_up(self, texts: Mapping[Path, str]) -> list[Path]:
        """Backs up hand-written texts that are about to be replaced. Returns the backup files."""
        return [back_up(log.captions, {path.name: texts[path] for path in paths}) for log, paths in self._by_log(texts)]

    def _by_log(self, texts: Iterable[Path]) -> Iterable[tuple[Provenance, list[Path]]]:
        groups: dict[Path, list[Path]] = defaultdict(list)
        for path in texts:
            groups[self.of(path).captions].append(path)
        return [(self._log(captions), paths) for captions, paths in groups.items()]
