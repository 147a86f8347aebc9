"""Writes training captions to text files next to the pictures, as training scripts for image generators expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tellapart.captions.authors import UNKNOWN, Author
from tellapart.captions.journal import new_change
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.own_texts import text_of_person, write_own
from tellapart.captions.paths_beside import NAMED_FILES, files_beside
from tellapart.captions.replacement import Replace
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
    made = {targets[key]: one.text + "\n" for key, one in edited.items() if one.text}
    stay = write_own(made, own, Replace(edited=replaces.edited), change=new_change("lora", author))
    there, kept = dict(edited), dict[str, tuple[Path, list[str]]]()
    for key, path in targets.items() if not replaces.edited else ():
        if path in stay or ((key not in edited or not edited[key].text) and text_of_person(path, own) is not None):
            kept[key] = path, [" ".join(line.split()) for line in text_of(path).splitlines() if line.strip()]
    captions = {item.id: len(item.references) for item in items}
    for key, (_, lines) in kept.items():
        listed = captions[key] > 1 or (key in edited and "\n" in edited[key].text)
        there[key] = Edited("\n".join(lines) if listed else _joined_lines(lines), accepted=True)
    if not kept:
        return there, []

    def of_these(paths: list[Path], fault: str, advice: str) -> list[str]:
        names = few((path.name for path in paths), NAMED_FILES)
        return [f"{len(paths):,} of these {fault}: {names}; {advice}"] if paths else []

    texts = [(path, lines, there[key].text) for key, (path, lines) in kept.items()]
    return there, [
        f"{len(kept):,} {suffix} files were written or edited by hand and were kept (the list contains their "
        "text); pass --replace-edited to replace them",
        *of_these(
            [path for path, _, text in texts if text and not has_phrase(text, trigger)],
            f"do not contain the trigger '{trigger}', so the generator will not learn it from them",
            "add the trigger to these files",
        ),
        *of_these(
            [path for path, _, text in texts if not text],
            "are empty, so their pictures will be trained on without a caption",
            "write a caption, or remove the file",
        ),
        *of_these(
            [path for path, *_ in texts if path.read_bytes().startswith(UTF16_MARKS)],
            "are in UTF-16, but training scripts expect UTF-8",
            "convert them to UTF-8",
        ),
        *of_these(
            [path for path, lines, _ in texts if len(lines) > 1],
            "have several lines, but kohya's scripts read only the first line, or a random one with enable_wildcard",
            "join each caption's lines",
        ),
    ]


def _joined_lines(lines: Sequence[str]) -> str:
    """Joins lines into one text, adding a full stop to lines that end without punctuation."""
    ended = [line if line[-1:] in ".!?,;:…" else f"{line}." for line in lines[:-1]]
    return " ".join([*ended, *lines[-1:]])


def text_of(path: Path) -> str:
    """Returns the text of a file, or "" if it does not exist. Raises the same `UsageError` as `read_text`."""
    return read_text(path) if path.exists() else ""
