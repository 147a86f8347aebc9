"""The layout with a text in a ``.txt``, ``.caption`` or ``.xmp`` file next to each picture."""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tellapart.captions.layout import CaptionLayout, TextPlace
from tellapart.captions.xmp_keys import key_of, part_of
from tellapart.data import xmp, xmp_files
from tellapart.data.pictures import FilePicture
from tellapart.data.sidecars import sidecars
from tellapart.data.text_files import decode_text
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.atomic_writes import replace_text
from tellapart.utils.write_errors import write_errors

BESIDE = (".txt", ".caption")
WRITERS = 16  # threads


class Sidecars(CaptionLayout):
    """A text in a ``.txt``, ``.caption`` or ``.xmp`` file next to each picture.

    part: property and language of the text in an ``.xmp`` file. By default, the alt text that readers show: the default
        text or, if there is none, the text in the first language.
    """

    def __init__(
        self, suffixes: Sequence[str], files: Mapping[str, Path], part: tuple[str, str] = (xmp.ALT, xmp.DEFAULT)
    ) -> None:
        self.name = f"{suffixes[0]} files"
        self._suffixes, self._files, self._part = suffixes, dict(files), part

    @classmethod
    def find(cls, items: Sequence[Item], suffixes: Sequence[str]) -> Sidecars:
        """Finds the files next to the pictures. Raises `UsageError` if a picture is not a file."""
        by_folder: dict[Path, list[tuple[str, str]]] = {}
        for item in items:
            if not isinstance(item.picture, FilePicture):
                raise UsageError(
                    f"{item.picture.name} is not a file, so a {suffixes[0]} file cannot be written "
                    "beside it; pass a caption file, as the second argument of review or with --captions"
                )
            by_folder.setdefault(item.picture.path.parent, []).append((item.id, item.picture.path.name))
        files: dict[str, Path] = {}
        for folder, pictures in by_folder.items():
            texts = [
                entry.name for entry in os.scandir(folder) if posixpath.splitext(entry.name)[1].lower() in suffixes
            ]
            names = [name for _, name in pictures]
            beside = sidecars(names, texts, suffixes)
            pictures_of = Counter(posixpath.splitext(name)[0] for name in names)
            for id_, name in pictures:
                stem = posixpath.splitext(name)[0]
                files[id_] = folder / beside.get(name, (name if pictures_of[stem] > 1 else stem) + suffixes[0])
        return cls(suffixes, files)

    @property
    def present(self) -> list[str]:
        """Returns the sorted suffixes of the files that exist, or an empty list if no picture has a text."""
        return sorted({path.suffix.lower() for path in self._files.values() if path.exists()})

    def place(self, id_: str) -> TextPlace:
        path = self._files[id_]
        key = key_of(*self._part)
        return TextPlace(path.parent, f"*{(path.suffix + key).lower()}", path.name + key)

    def file_of(self, file: str) -> str:
        return file.partition("#")[0] if self._is_shown and file.startswith("*.xmp#") else file

    def parts(self, keys: Iterable[str]) -> list[CaptionLayout]:
        marks = dict.fromkeys(key[key.lower().rindex(".xmp#") + len(".xmp") :] for key in keys)
        return [Sidecars(self._suffixes, self._files, part_of(mark)) for mark in marks]

    def read(self, ids: Sequence[str]) -> dict[str, str]:
        texts = {id_: self._read(self._files[id_]) for id_ in ids}
        return {id_: text for id_, text in texts.items() if text is not None}

    def _read(self, path: Path) -> str | None:
        try:
            if self._suffixes[0] != ".xmp":
                return path.read_bytes().decode("utf-8", "surrogateescape")
            packet = xmp_files.read_sidecar(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror}); make it readable") from None
        return self._text_in(packet, path)

    def _text_in(self, packet: str, path: Path) -> str | None:
        if self._is_shown:
            return xmp.texts_of(packet, str(path)).get(xmp.ALT)
        return xmp.languages_of(packet, str(path)).get(self._part)

    @property
    def _is_shown(self) -> bool:
        """Returns whether the text is the alt text that readers show."""
        return self._part == (xmp.ALT, xmp.DEFAULT)

    def raw(self, id_: str, text: str) -> str:
        return text if self._suffixes[0] == ".xmp" or not text else text + "\n"

    def text(self, id_: str, raw: str) -> str:
        data = raw.encode("utf-8", "surrogateescape")
        with contextlib.suppress(UnicodeDecodeError):  # undecodable text has another encoding
            return raw if self._suffixes[0] == ".xmp" else decode_text(data)
        return raw

    def write(self, raws: Mapping[str, str | None], states: Mapping[str, Mapping[str, Any]]) -> None:
        with ThreadPoolExecutor(WRITERS) as pool:  # threads, because renaming a file over another waits for the disk
            for _ in pool.map(lambda one: self._write(self._files[one[0]], one[1]), raws.items()):
                pass

    def _write(self, path: Path, raw: str | None) -> None:
        with write_errors(path, "make the folder writable", "free some disk space and save again"):
            if self._suffixes[0] == ".xmp":
                packet = xmp_files.read_sidecar(path)
                if packet or raw:
                    same = list[tuple[str, str]]()
                    if self._is_shown:
                        shown, texts = self._text_in(packet, path), xmp.languages_of(packet, str(path))
                        same = [key for key, text in texts.items() if key[0] == xmp.ALT and text == shown]
                    new = dict.fromkeys([*same, self._part], raw)
                    replace_text(path, xmp.with_languages(packet, new, str(path)))
            elif raw is None:
                path.unlink(missing_ok=True)
            else:
                replace_text(path, raw, errors="surrogateescape", sync=False)

    def strays(self) -> dict[TextPlace, str]:
        used, found = set(self._files.values()), dict[TextPlace, str]()
        for folder in {path.parent for path in used}:
            for suffix in self._suffixes:
                for path in sorted(set(folder.glob(f"*{suffix}")) - used):
                    if (raw := self._read(path)) is not None:
                        found[TextPlace(folder, f"*{suffix}", path.name)] = raw
        return found

    def move(self, stray: TextPlace, id_: str) -> None:
        target, source = self._files[id_], stray.folder / stray.key
        with write_errors(source, "make the folder writable"):
            source.rename(target.with_suffix(source.suffix))
        self._files[id_] = target.with_suffix(source.suffix)
