"""Writes training captions to text files next to the pictures, as training scripts for image generators expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tellapart.captions.authors import UNKNOWN, Author
from tellapart.captions.journal import new_change
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.paths_beside import NAMED_FILES, files_beside
from tellapart.captions.replacement import Replace
from tellapart.captions.texts_beside import text_of_person, write_own
from tellapart.data.text_files import UTF16_MARKS, read_text
from tellapart.language.phrase_search import has_phrase
from tellapart.purposes.edited import Edited
from tellapart.types import Item
from tellapart.utils.listed_names import few


def write_beside(
    items: Sequence[Item],
    edited: Mapping[str, Edited],
    own: OwnFiles,
    replaces: Replace,
    suffix: str,
    trigger: str,
    author: Author = UNKNOWN,
) -> tuple[dict[str, Edited], list[str]]:
    """Writes a text file next to each picture that has a text.

    A file that this command did not write, or that a person has changed, is kept unless ``replaces.edited`` is set, and
    its text becomes the picture's text. Returns the texts that are now on disk, and messages about files that people
    wrote.
    """
    targets = files_beside(items, suffix)
    stay = write_own({targets[key]: one.text + "\n" for key, one in edited.items() if one.text}, own, replaces.edited,
                     change=new_change("lora", author))  # fmt: skip
    captions = {item.id: len(item.references) for item in items}
    there, several, bare, empty, utf16 = dict(edited), list[str](), list[str](), list[str](), list[str]()
    for key, path in targets.items() if not replaces.edited else ():
        if path in stay or ((key not in edited or not edited[key].text) and text_of_person(path, own) is not None):
            lines = [" ".join(line.split()) for line in text_of(path).splitlines() if line.strip()]
            listed = captions[key] > 1 or (key in edited and "\n" in edited[key].text)
            text = "\n".join(lines) if listed else _joined_lines(lines)
            there[key] = Edited(text, accepted=True)
            several += [path.name] if len(lines) > 1 else []
            bare += [path.name] if text and not has_phrase(text, trigger) else []
            empty += [path.name] if not text else []
            utf16 += [path.name] if path.read_bytes().startswith(UTF16_MARKS) else []
    people = [key for key, one in there.items() if one.accepted]
    said = []
    if people:
        said.append(
            f"{len(people):,} {suffix} files were written or edited by hand and were kept (the list contains their "
            "text); pass --replace-edited to replace them"
        )
    if bare:
        said.append(
            f"{len(bare):,} of these do not contain the trigger '{trigger}', so the generator will "
            f"not learn it from them: {few(bare, NAMED_FILES)}; add the trigger to these files"
        )
    if empty:
        said.append(
            f"{len(empty):,} of these are empty, so their pictures will be trained on without a "
            f"caption: {few(empty, NAMED_FILES)}; write a caption, or remove the file"
        )
    if utf16:
        said.append(
            f"{len(utf16):,} of these are in UTF-16, but training scripts expect UTF-8: {few(utf16, NAMED_FILES)}; "
            "convert them to UTF-8"
        )
    if several:
        said.append(
            f"{len(several):,} of these have several lines, but kohya's scripts read only the first line, or a random "
            f"one with enable_wildcard: {few(several, NAMED_FILES)}; join each caption's lines"
        )
    return there, said


def _joined_lines(lines: Sequence[str]) -> str:
    """Joins lines into one text, adding a full stop to lines that end without punctuation."""
    ended = [line if line[-1:] in ".!?,;:…" else f"{line}." for line in lines[:-1]]
    return " ".join([*ended, *lines[-1:]])


def text_of(path: Path) -> str:
    """Returns the text of a file, or "" if it does not exist. Raises the same `UsageError` as `read_text`."""
    return read_text(path) if path.exists() else ""
