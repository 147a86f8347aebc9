"""Checks the output files before the first picture is captioned: whether they can be written, and what they contain."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from tellapart.captions.formats import name_in
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.own_texts import text_of_person
from tellapart.captions.paths_beside import NAMED_FILES, check_beside
from tellapart.captions.replacement import Replace
from tellapart.data.caption_files import METADATA_FILES
from tellapart.data.pictures import FilePicture
from tellapart.errors import UsageError
from tellapart.language.codes import language_code
from tellapart.purposes.embed import check_embed
from tellapart.purposes.hand_edits import people_rows, rows_in
from tellapart.purposes.packed import PACKED
from tellapart.purposes.training_text_files import text_of
from tellapart.types import Item
from tellapart.utils.atomic_writes import writable_file
from tellapart.utils.listed_names import few
from tellapart.utils.outputs import check_output


def check_files(
    items: Sequence[Item],
    out: Path,
    own: OwnFiles,
    replaces: Replace,
    beside: str | None,
    mixed: bool,
    copies: Sequence[Path | None],
) -> None:
    """Raises a single `UsageError` that lists all files that cannot be read or written.

    Args:
        beside: the suffix of text files next to the pictures.
        mixed: whether ``out`` may also contain rows that a person wrote.
        copies: the folders that `embed` writes to.
    """
    problems: list[str] = []

    def attempt(check: Callable[[], object]) -> None:
        try:
            check()
        except UsageError as error:
            problems.append(str(error))

    def rows_of_pictures() -> None:
        if other := sorted(people_rows(out, items).keys() - {item.id for item in items}):
            raise UsageError(
                f"{out} contains {len(other):,} hand-written texts that belong to other pictures, "
                f"such as '{other[0]}'; specify another file with -o"
            )

    if beside is not None:
        attempt(lambda: check_beside(items, beside))
    for folder in copies:
        attempt(lambda folder=folder: check_embed(items, folder))  # type: ignore[misc]
    for item in items:
        if isinstance(item.picture, FilePicture):
            path = item.picture.path
            if beside is not None:
                attempt(lambda path=path: text_of(path.with_suffix(beside)))  # type: ignore[misc]
        if out.name in METADATA_FILES:
            attempt(lambda item=item: name_in(item, out.parent))  # type: ignore[misc]
    attempt(lambda: writable_file(out))
    if out.is_file() and not (mixed and replaces.edited):
        attempt(rows_of_pictures if mixed else lambda: refuse_foreign(out, own, replaces))
    if problems:
        raise UsageError(few(problems, NAMED_FILES, "; "))


def refuse_other_language(out: Path, language: str) -> None:
    """Raises `UsageError` if the texts in ``out`` are in a language other than ``language``."""
    if not language or not out.is_file():
        return
    try:
        known = {_language_of(str(row.get("language") or "")) for row in rows_in(out)}
    except (ValueError, AttributeError, csv.Error):
        return  # the code that reads the rows reports the error
    if other := sorted(known - {language}):
        said = f"are marked as '{other[0]}'" if other[0] else "have no language tag"
        raise UsageError(
            f"--language {language}: the texts in {out} {said}; use one file per language, such "
            f"as -o {out.stem}.{language}{out.suffix}"
        )


def _language_of(tag: str) -> str:
    """Returns a stored language tag in its usual form, because earlier versions stored it as typed."""
    try:
        return language_code(tag)
    except UsageError:
        return tag


def refuse_foreign(out: Path, own: OwnFiles, replaces: Replace) -> None:
    """Raises `UsageError` if a person wrote the file ``out``. Checks files with pictures like `check_output`."""
    if out.suffix.lower() in PACKED:
        check_output(out)
    elif text_of_person(out, own) is not None and not replaces.edited:
        raise UsageError(
            f"{out} was not written by this command, or has changed since; move it elsewhere, or "
            "pass --replace-edited (a backup is kept)"
        )
