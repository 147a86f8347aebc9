"""Text files beside pictures, in the format that training scripts for image generators read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tellapart.captions.authors import UNKNOWN, Author
from tellapart.captions.log import new_run
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.replacement import Replace
from tellapart.captions.texts_beside import NAMED_FILES, files_beside, text_of_person, write_own
from tellapart.data.open import expanded
from tellapart.data.pictures import FilePicture
from tellapart.data.specification import parse
from tellapart.data.text_files import UTF16_MARKS, read_text
from tellapart.errors import UsageError
from tellapart.purposes.texts import Edited, has_phrase
from tellapart.types import Item
from tellapart.utils.listed_names import few


def common_folder(items: Sequence[Item]) -> Path:
    """Returns the common parent folder of all pictures. Raises `UsageError` if any picture is not a file."""
    paths = [item.picture.path.absolute() for item in items if isinstance(item.picture, FilePicture)]
    if len(paths) < len(items) or not paths:
        name = next((item.picture.name for item in items if not isinstance(item.picture, FilePicture)), "nothing")
        raise UsageError(f"{name} is not a file, so a .txt file cannot be written beside it; use -o captions.jsonl")
    return Path(os.path.commonpath([path.parent for path in paths]))


def refuse_scattered(items: Sequence[Item], typed: Sequence[str]) -> None:
    """Raises `UsageError` if the pictures are in several folders and the command does not name their common parent."""
    root = common_folder(items).resolve()
    folders = dict.fromkeys(
        item.picture.path.resolve().parent for item in items if isinstance(item.picture, FilePicture)
    )
    named = [path.resolve() for path in (parse(spec)[1] for spec in expanded(typed)) if path.is_dir()]
    if len(folders) > 1 and not any(path == root or path in root.parents for path in named):
        raise UsageError(
            f"the pictures are in {len(folders):,} folders ({', '.join(str(each) for each in list(folders)[:3])}), "
            f"but metadata.jsonl has to be in a single folder; pass {root}, run the command once "
            "per folder, or specify a file with -o"
        )


def write_beside(
    items: Sequence[Item],
    edited: Mapping[str, Edited],
    own: OwnFiles,
    replaces: Replace,
    suffix: str,
    trigger: str,
    author: Author = UNKNOWN,
) -> tuple[dict[str, Edited], list[str]]:
    """Writes a text file beside each picture that has a text; returns the texts now on disk, and messages about files
    that people wrote.

    A file that this command did not write, or that a person has changed, is kept unless ``replaces.edited``; its text
    then becomes the picture's text.
    """
    targets = files_beside(items, suffix)
    stay = write_own({targets[key]: one.text + "\n" for key, one in edited.items() if one.text}, own, replaces.edited,
                     run=new_run("lora", author))  # fmt: skip
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
            f"one with enable_wildcard: {few(several, NAMED_FILES)}; join the lines of a caption"
        )
    return there, said


def _joined_lines(lines: Sequence[str]) -> str:
    """Joins lines into one text; adds a full stop to lines that end without punctuation."""
    ended = [line if line[-1:] in ".!?,;:…" else f"{line}." for line in lines[:-1]]
    return " ".join([*ended, *lines[-1:]])


def text_of(path: Path) -> str:
    """Returns the text of a file, or "" if it does not exist. Raises `UsageError` like `read_text`."""
    return read_text(path) if path.exists() else ""
