"""Writes a text file next to each picture."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tellapart.captions.journal import JournalChange
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.own_texts import text_of_person, write_own
from tellapart.captions.paths_beside import check_beside
from tellapart.captions.replacement import Replace
from tellapart.captions.undo_hint import say_replaced
from tellapart.captions.written import Written
from tellapart.errors import PictureError
from tellapart.types import Item
from tellapart.utils.locks import locked
from tellapart.utils.messages import say

MAX_LOCKS = 64  # folders to lock: each lock is an open file, and two runs on the same pictures lock the same folders


class TextFiles:
    """Writes a ``.txt`` file next to each picture, as data set tools expect."""

    def __init__(
        self, own: OwnFiles, targets: Mapping[str, Path], replaces: Replace, change: JournalChange | None
    ) -> None:
        self._own, self._targets, self._replaces, self._change = own, targets, replaces, change
        self._people: list[Path] = []  # files in which a person's text has been replaced
        self._locks = contextlib.ExitStack()
        self.done: set[str] = set()

    @classmethod
    def beside(
        cls,
        items: Sequence[Item],
        replaces: Replace,
        say: Callable[[str], None] = say,
        change: JournalChange | None = None,
    ) -> TextFiles:
        """Finds the pictures whose text files are kept. Raises `UsageError` if a file cannot be written."""
        own = OwnFiles()
        found = cls(own, check_beside(items, ".txt"), replaces, change)
        edited = replaced = 0
        for item in items:
            target = found._targets[item.id]
            if text_of_person(target, own, accepted=replaces.own) is not None:
                edited += 1
                found.done |= set() if replaces.edited else {item.id}
            elif target.exists() and not replaces.own:
                known = own.of(target).rows[target.name].picture
                with contextlib.suppress(PictureError):  # reported when the picture is read
                    if known is not None and not known.is_of(item.picture):
                        replaced += 1
                        continue
                found.done.add(item.id)
            elif found._stays_empty(target):
                found.done.add(item.id)
        if edited and replaces.own and not replaces.edited:
            say(
                f"{edited:,} .txt files were written, edited or accepted by hand and are kept; pass "
                "--replace-edited to replace them as well"
            )
        if replaced:
            say(f"{replaced:,} pictures have since been replaced and are captioned again")
        return found

    def write(self, captions: Sequence[Written]) -> None:
        """Writes one file per caption; each file is either complete or absent."""
        self._own.refresh(self._targets[one.item.id] for one in captions)
        written = {target: one for one in captions if not self._stays_empty(target := self._targets[one.item.id])}
        texts = {target: one.caption + "\n" for target, one in written.items()}
        pictures = {target: one.picture for target, one in written.items()}
        edited = write_own(texts, self._own, self._replaces, pictures, self._change)
        self._people += edited if self._replaces.edited else ()
        self.done.update(one.item.id for one in captions)

    def _stays_empty(self, target: Path) -> bool:
        """Returns whether a person marked the picture as needing no text, so that its file is not created."""
        if self._replaces.edited or target.exists():
            return False
        return self._own.of(target).is_decorative(target.name)

    def lock(self) -> None:
        """Locks the folders until `close`. Raises `UsageError` if another process is writing to them."""
        folders = sorted({path.parent for path in self._targets.values()})
        with contextlib.ExitStack() as stack:
            for folder in folders[:MAX_LOCKS]:
                stack.enter_context(locked(folder, wait=False, name=".txt.lock"))
            self._locks = stack.pop_all()

    def close(self) -> None:
        """Prints how many hand-written texts were replaced."""
        self._locks.close()
        if self._people:
            say_replaced(self._people)
