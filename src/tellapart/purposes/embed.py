"""Embeds alt text as XMP, in a sidecar next to each picture or inside copies of the pictures."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tellapart.captions.journal import JournalChange
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.paths_beside import check_beside, common_folder, files_beside
from tellapart.captions.text_hash import text_hash
from tellapart.captions.xmp_keys import key_of
from tellapart.data import xmp, xmp_files
from tellapart.data.pictures import FilePicture
from tellapart.errors import UsageError
from tellapart.purposes.edited import Edited
from tellapart.types import Item
from tellapart.utils.outputs import check_output, input_folder, write_output


@dataclass(frozen=True)
class Embedded:
    """Counts the XMP sidecars and copies that were written.

    stayed: pictures whose alt text came from another source and was kept.
    others: sidecars of other programs (``PICTURE.jpg.xmp``) for the same pictures.
    """

    sidecars: int = 0
    copies: int = 0
    stayed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def _packets(picture: Path) -> tuple[str, str, str]:
    """Returns the XMP inside a picture, in ``PICTURE.xmp``, and in ``PICTURE.jpg.xmp``.

    Raises `UsageError` for invalid XMP.
    """
    paths = [picture.with_suffix(".xmp"), picture.with_name(f"{picture.name}.xmp")]
    inside = xmp_files.packet_in(picture.read_bytes(), str(picture))
    beside, other = map(xmp_files.read_sidecar, paths)
    for packet, path in zip((inside, beside, other), (picture, *paths), strict=True):
        xmp.texts_of(packet, str(path))
    return inside, beside, other


def _takes_packet(picture: Path) -> bool:
    with picture.open("rb") as file:
        return xmp_files.takes_packet(file.read(8))


def _of(key: tuple[str, str], target: Path) -> Path:
    """Returns the name under which `OwnFiles` records a file's text in this property and language."""
    return target.with_name(target.name + key_of(*key))


def _target(picture: Path, root: Path, folder: Path | None) -> Path:
    """Returns the file to write alt text to: a copy in ``folder`` if it can contain XMP, otherwise a sidecar."""
    place = picture if folder is None else folder / os.path.relpath(picture.absolute(), root)
    return place if folder is not None and _takes_packet(picture) else place.with_suffix(".xmp")


def check_embed(items: Sequence[Item], folder: Path | None) -> None:
    """Raises `UsageError` if `embed` could not write a file or could not read existing XMP.

    Call this before starting slow work.

    folder: the folder for copies. A copy must not overwrite one of these pictures or a file that this program did not
    write, and the next run must not read it as a picture.
    """
    if folder is None:
        check_beside(items, ".xmp", "remove --embed")
    else:
        files_beside(items, ".xmp", "remove --copies")
    root = common_folder(items)
    files = (item.picture.path for item in items if isinstance(item.picture, FilePicture))
    pictures = [path for path in files if path.exists()]
    sources = {(status.st_dev, status.st_ino): path for path in pictures if (status := path.stat())}
    for picture in pictures:
        with contextlib.suppress(PermissionError):  # unreadable pictures are not captioned either
            _packets(picture)
            if folder is not None:
                copy = folder / os.path.relpath(picture.absolute(), root)
                for target in {copy, _target(picture, root, folder)}:
                    _check_copy(target, sources)


def _check_copy(target: Path, sources: Mapping[tuple[int, int], Path]) -> None:
    """Raises `UsageError` if a copy must not be written. ``sources``: pictures by device and inode."""
    if target.exists() and (source := sources.get((target.stat().st_dev, target.stat().st_ino))) is not None:
        raise UsageError(
            f"{target} is also the input picture {source}, which must not be overwritten; choose "
            "another folder with --copies"
        )
    if (typed := input_folder(target.parent)) is not None:
        raise UsageError(
            f"--copies {target.parent}: this folder is inside {typed}, so the next run would treat "
            "the copies as input pictures; choose a folder outside it"
        )
    check_output(target)


@dataclass(frozen=True)
class EmbedSettings:
    """Settings of `embed`.

    Args:
        replace_edited: whether to replace alt texts that this command did not write, after backing them up.
        folder: the folder for copies; None writes sidecars next to the pictures.
        language: the language of the texts, such as ``de``; "" if unspecified.
        event: who wrote the texts, for the history in the XMP.
        change: the journal entry for the sidecar texts; if None, they cannot be undone.
    """

    replace_edited: bool = False
    folder: Path | None = None
    language: str = ""
    event: xmp.TextEvent | None = None
    change: JournalChange | None = None


def embed(items: Sequence[Item], edited: Mapping[str, Edited], own: OwnFiles, settings: EmbedSettings) -> Embedded:
    """Writes texts as IPTC alt text, to ``PICTURE.xmp`` next to each picture or into copies of the pictures.

    Texts are embedded in copies of JPEG and PNG files; copies in other formats get a sidecar. All other metadata is
    kept. An existing alt text that this command did not write is kept if it is in the specified language (en-US counts
    as en), or if no language is specified. An empty text that a person accepted clears the alt text. Original pictures
    are never changed.

    Raises:
        UsageError: in the same cases as `check_embed`.
    """
    check_embed(items, settings.folder)
    root, folder, language = common_folder(items), settings.folder, settings.language or xmp.DEFAULT
    todo, stayed = list[tuple[Path, Path, str]](), list[str]()
    texts, before, replaced = dict[Path, str](), dict[Path, str](), dict[Path, str]()
    for item in items:
        one = edited.get(item.id, Edited(""))
        if not (one.text or one.accepted) or not isinstance(item.picture, FilePicture):
            continue
        picture, sidecar = item.picture.path, item.picture.path.with_suffix(".xmp")
        target, (inside, beside, other) = _target(picture, root, folder), _packets(picture)
        in_sidecar = xmp.languages_of(beside, str(picture))
        said = xmp.languages_of(other, str(picture)) | in_sidecar | xmp.languages_of(inside, str(picture))
        if not one.text and not said and folder is None:
            continue
        ours = _texts_of(one, said, language)
        theirs = {key: text for key, text in said.items() if not own.is_own(_of(key, sidecar), text)}
        if settings.replace_edited:
            replaced |= {_of(key, sidecar): text for key, text in theirs.items() if ours.get(key, text) != text}
            theirs = {key: text for key, text in theirs.items() if key not in ours}
        elif _is_taken(theirs, one.text, settings.language) or _was_emptied(one, said, own, sidecar, language):
            stayed.append(item.id)
            if folder is None:
                continue
            ours = {}
        base = inside if target.suffix != ".xmp" else beside or (other if folder is not None else "")
        packet = _with_texts(base, ours | theirs, target, settings.event)
        if target.suffix != ".xmp" and len(packet.encode()) > xmp_files.MOST:
            raise UsageError(
                f"{picture}: the text does not fit in the XMP packet ({xmp_files.MOST:,} bytes at most); exclude this "
                "picture"
            )
        texts |= {_of(key, target): text for key, text in ours.items() if key not in theirs}
        before |= {_of(key, target): text for key, text in in_sidecar.items()}
        todo.append((picture, target, packet))
    if folder is None:
        own.back_up(replaced)
        changed = {path: text for path, text in texts.items() if before.get(path, "") != text}
        own.record({path: text for path, text in texts.items() if path not in changed})
        own.record(changed, change=settings.change, before=before)
    for picture, target, packet in todo:
        _write(picture, target, packet, folder)
    sidecars = [picture for picture, target, _ in todo if target.suffix == ".xmp"]
    if folder is not None:
        return Embedded(len(sidecars), len(todo), tuple(stayed))
    others = (picture.with_name(f"{picture.name}.xmp") for picture in sidecars)
    return Embedded(len(sidecars), 0, tuple(stayed), tuple(str(path) for path in others if path.exists()))


Texts = dict[tuple[str, str], str]  # by property and language


def _texts_of(one: Edited, said: Texts, language: str) -> Texts:
    """Returns the texts to write. They also become the default texts, unless the picture already has one."""
    texts: Texts = {}
    for name, text in ((xmp.ALT, one.text), (xmp.LONG, one.long)):
        if text or one.accepted:
            texts[name, language] = text
            if said.get((name, xmp.DEFAULT)) in (None, said.get((name, language))):
                texts[name, xmp.DEFAULT] = text
    return texts


def _is_taken(theirs: Texts, text: str, language: str) -> bool:
    """Returns whether the picture already has another alt text, which must be kept."""
    return any(name == xmp.ALT and other != text and _share_language(code, language)
               for (name, code), other in theirs.items())  # fmt: skip


def _share_language(one: str, other: str) -> bool:
    """Returns whether two language codes are compatible, such as en and en-US; "" is compatible with any language."""
    short, long = sorted((one.lower(), other.lower()), key=len)
    return not short or short == long or long.startswith(f"{short}-")


def _was_emptied(one: Edited, said: Texts, own: OwnFiles, sidecar: Path, language: str) -> bool:
    """Returns whether a person emptied the alt text that this command wrote, so that the picture is decorative."""
    row = own.of(sidecar).rows.get(_of((xmp.ALT, language), sidecar).name)
    written = row is not None and not row.removed and row.hashes[-1:] not in ((), (text_hash(""),))
    return written and (xmp.ALT, language) not in said and sidecar.exists() and not one.accepted


def _with_texts(packet: str, texts: Texts, target: Path, event: xmp.TextEvent | None) -> str:
    """Returns the packet with these texts, or the unchanged packet if it already contains them."""
    there = xmp.languages_of(packet, str(target))
    new = {key: text for key, text in texts.items() if there.get(key, "") != text}
    return xmp.with_languages(packet, new, str(target), event if new else None) if new or not packet else packet


def _write(picture: Path, target: Path, packet: str, folder: Path | None) -> None:
    if folder is None:
        write_output(target, packet, own=True)
        return
    if target.suffix == ".xmp":
        write_output(target, packet)
        write_output(target.with_suffix(picture.suffix), lambda new: shutil.copy(picture, new))
        return
    data = xmp_files.with_packet(picture.read_bytes(), packet, str(picture))

    def write(new: Path) -> None:
        new.write_bytes(data)
        shutil.copymode(picture, new)

    write_output(target, write)
