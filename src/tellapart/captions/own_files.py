"""Keeps track of the text files that tellapart wrote next to pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tellapart.captions.backups import back_up
from tellapart.captions.journaled_run import JournaledRun
from tellapart.captions.log_row import TextRow
from tellapart.captions.picture_record import PictureRecord
from tellapart.captions.provenance import Provenance
from tellapart.captions.text_hash import text_hash


class OwnFiles:
    """Tracks the text files that tellapart wrote next to pictures, in any number of folders."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str], Provenance] = {}

    def of(self, path: Path) -> Provenance:
        """Returns the log for all files with the same folder and suffix as ``path``."""
        return self._log(path.parent, f"*{path.suffix.lower()}")

    def _log(self, folder: Path, file: str) -> Provenance:
        if (folder, file) not in self._known:
            self._known[folder, file] = Provenance.open(folder / file)
        return self._known[folder, file]

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
        return any(not hashes.isdisjoint(self._listed(folder)) for folder in picture.parents)

    def _listed(self, folder: Path) -> set[str]:
        """Returns the hashes of the texts that tellapart wrote to the folder's ``metadata.jsonl``."""
        return {text for row in self._log(folder, "metadata.jsonl").rows.values() for text in row.hashes}

    def record(
        self,
        texts: Mapping[Path, str],
        pictures: Mapping[Path, PictureRecord | None] | None = None,
        run: JournaledRun | None = None,
        before: Mapping[Path, str] | None = None,
    ) -> None:
        """Records texts that are about to be written, with their pictures (see `Provenance`)."""
        for log, paths in self._by_log(texts):
            rows = {path.name: TextRow.new(texts[path], (pictures or {}).get(path)) for path in paths}
            log.record(rows, run, {path.name: before[path] for path in paths if path in before} if before else None)

    def back_up(self, texts: Mapping[Path, str]) -> list[Path]:
        """Backs up hand-written texts that are about to be replaced. Returns the backup files."""
        return [
            back_up(log.path.with_name(log.file), {path.name: texts[path] for path in paths})
            for log, paths in self._by_log(texts)
        ]

    def _by_log(self, texts: Mapping[Path, str]) -> Iterator[tuple[Provenance, list[Path]]]:
        groups: dict[str, tuple[Provenance, list[Path]]] = {}
        for path in texts:
            log = self.of(path)
            groups.setdefault(f"{log.path}\n{log.file}", (log, []))[1].append(path)
        yield from groups.values()
