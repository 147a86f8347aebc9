"""Checks all output files before the first picture is captioned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tellapart.captions.formats import name_in
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.replacement import Replace
from tellapart.captions.texts_beside import NAMED_FILES, check_beside
from tellapart.data.caption_files import METADATA_FILES
from tellapart.data.pictures import FilePicture
from tellapart.errors import UsageError
from tellapart.purposes.beside import text_of
from tellapart.purposes.embed import check_embed
from tellapart.purposes.lists import people_rows, refuse_foreign
from tellapart.types import Item
from tellapart.utils.atomic_writes import writable_file
from tellapart.utils.listed_names import few


def check_files(
    items: Sequence[Item],
    out: Path,
    own: OwnFiles,
    replaces: Replace,
    beside: str | None,
    mixed: bool,
    copies: Sequence[Path | None],
) -> None:
    """Raises a single `UsageError` that names all files that cannot be read or written.

    Args:
        beside: the suffix of text files beside the pictures.
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
