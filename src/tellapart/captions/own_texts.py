"""Reads and writes a text file next to a picture without losing a text that a person wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from tellapart.captions.authors import UNKNOWN
from tellapart.captions.journal import JournalChange, new_change
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.picture_record import PictureRecord
from tellapart.captions.replacement import Replace
from tellapart.captions.undo_hint import say_replaced
from tellapart.errors import UsageError
from tellapart.utils.atomic_writes import replace_text
from tellapart.utils.write_errors import write_errors


def text_of_person(path: Path, own: OwnFiles, *, accepted: bool = False) -> str | None:
    """Returns the text of a hand-written or edited file, or None if tellapart wrote the file or it does not exist.

    Invalid UTF-8 is decoded with `surrogateescape`. ``accepted``: see `Provenance.is_persons`.
    """
    text = _text_in(path)
    return text if text is not None and own.of(path).is_persons(path.name, text, accepted=accepted) else None


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
    replaces: Replace,
    pictures: Mapping[Path, PictureRecord | None] | None = None,
    change: JournalChange | None = None,
) -> dict[Path, str]:
    """Writes each text to its own file. Returns the texts of people, which are kept unless ``replaces.edited`` is set.

    Reads the files again, because a person may have written one during captioning. ``change``: the change that the
    texts belong to, with which they can be undone; None starts a new change.
    """
    own.refresh(texts)
    before = {path: text for path in texts if (text := _text_in(path)) is not None}
    people = {path: text for path, text in before.items()
              if own.of(path).is_persons(path.name, text, accepted=replaces.own)}  # fmt: skip
    edited = {path: text for path, text in people.items() if text != texts[path]}
    todo = {path: text for path, text in texts.items() if path not in people or (replaces.edited and path in edited)}
    if todo:
        with _beside_errors(next(iter(todo))):
            own.record(todo, pictures, change or new_change("write", UNKNOWN), before)
            if edited and replaces.edited and change is None:
                say_replaced(edited)
    for path, text in todo.items():
        with _beside_errors(path):
            replace_text(path, text, sync=False)
    return edited


def _beside_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    return write_errors(path, "make the folder writable", "free some disk space and run the same command again")
