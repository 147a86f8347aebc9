"""``webdataset:SHARDS``: tar files in which the members of a sample are adjacent and share a name.

``0001.jpg``, ``0001.txt`` (one caption per line), ``0001.json`` (``caption``, ``text``, ``answer``, ``caption_0``, … as
in `tellapart.data.record_keys`; ``split``). SHARDS is a tar file, a folder of tar files, or a pattern such as
``data-{00000..00012}.tar`` or ``data-*.tar``. Tar files must be uncompressed, because random access requires it. If a
sample has several pictures or texts, the one named like the sample takes precedence: ``0001.jpg`` before
``0001.depth.png``. The text takes precedence over the JSON. The split comes from the JSON or, failing that, from the
shard's name. The id is ``SHARD/0001``, because names often restart in each shard. Reports samples that have no picture,
several pictures of which none is named like the sample, or unreadable texts. Also reports additional pictures in a
sample, links, and damaged shards, which are read up to the damage.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from tellapart.data.caption_values import clean_captions
from tellapart.data.columns import texts_of
from tellapart.data.dataset import Skipped
from tellapart.data.decode import PICTURE_SUFFIXES
from tellapart.data.file_patterns import expand_pattern, files_below, is_hidden
from tellapart.data.listed_pictures import missing_reason
from tellapart.data.options import Options
from tellapart.data.path_ids import path_id
from tellapart.data.pictures import MAX_FILE_BYTES, PackedClip, PackedPicture
from tellapart.data.reader import READERS, Reader
from tellapart.data.record_keys import DATA_KEYS, text_keys
from tellapart.data.row_index import RowPosition, stream_items
from tellapart.data.splits import normalize_split, split_from_name
from tellapart.data.text_files import decode_text
from tellapart.data.video import CLIP_SUFFIXES
from tellapart.errors import PictureError, UsageError
from tellapart.types import Item
from tellapart.utils.strict_json import parse_json

TAR_BLOCK_BYTES = tarfile.BLOCKSIZE
SHARD = 1 << 48  # position = shard · SHARD + byte
LONGEST_TEXT = 1 << 20
COMPRESSED = {b"\x1f\x8b": "gunzip", b"BZ": "bunzip2", b"\xfd7": "unxz", b"\x28\xb5": "unzstd"}
TEXTS = (".txt", ".caption", ".json")


def read(path: Path, options: Options) -> tuple[Sequence[Item], Skipped]:
    """Returns items in the order of the shards and their members."""
    if path.is_dir():
        shards = files_below(path, "*.tar")
        if not shards:
            raise UsageError(f"{path}: no *.tar in this folder")
    else:
        shards = expand_pattern(path)
    return stream_items(Shards(shards, str(path)), options, merge=False)


class Shards:
    """The samples of several tar files, as a `tellapart.data.row_index.RowSource`."""

    def __init__(self, shards: Sequence[Path], name: str) -> None:
        self._shards, self.name = shards, name

    def scan(self, missing: Skipped) -> Iterator[tuple[RowPosition, Item]]:
        """See `RowSource`."""
        number = 0
        for place, shard in enumerate(self._shards):
            if reason := missing_reason(shard):
                missing.add(str(shard), reason)
                continue
            try:
                with shard.open("rb") as file:
                    refuse_compressed(file, shard)
                    for start, members in samples(file):
                        number += 1
                        try:
                            item = _item(file, shard, members)
                        except UsageError as error:
                            missing.add(f"{shard}#{_key(members[0])}", str(error))
                            continue
                        for other in _pictures(members)[1:]:
                            missing.add(f"{shard}#{other.name}", f"extra picture; sample {_key(other)} already has one")
                        yield (place * SHARD + start, number), item
            except (tarfile.TarError, OSError) as error:
                missing.add(str(shard), f"damaged; read up to this point: {getattr(error, 'strerror', None) or error}")

    def read(self, places: Iterable[RowPosition]) -> Iterator[Item]:
        """See `RowSource`. Keeps a shard open while consecutive positions are in it."""
        shard, file = -1, None
        going: Iterator[tuple[int, list[tarfile.TarInfo]]] = iter(())
        try:
            for place, _ in places:
                wanted, start = divmod(place, SHARD)
                if wanted != shard:
                    if file is not None:
                        file.close()
                    shard, file, going = wanted, self._shards[wanted].open("rb"), iter(())
                assert file is not None
                found = next(going, None)
                if found is None or found[0] != start:
                    going = samples(file, start)
                    found = next(going)
                yield _item(file, self._shards[shard], found[1])
        except (tarfile.TarError, OSError, StopIteration) as error:
            raise UsageError(f"{self._shards[shard]}: the file has changed since it was opened ({error})") from None
        finally:
            if file is not None:
                file.close()


def samples(file: BinaryIO, start: int = 0) -> Iterator[tuple[int, list[tarfile.TarInfo]]]:
    """Yields (first byte, members) for every sample, starting at byte ``start``.

    Raises `tarfile.TarError` for damaged data, without yielding the last sample, which may lack some of its members.
    """
    group: list[tarfile.TarInfo] = []
    for member in _members(file, start):
        if not (member.isfile() or member.islnk() or member.issym()) or is_hidden(PurePosixPath(member.name)):
            continue
        if group and _key(member) != _key(group[0]):
            yield group[0].offset, group
            group = []
        group.append(member)
    if group:
        yield group[0].offset, group


def _members(file: BinaryIO, start: int) -> Iterator[tarfile.TarInfo]:
    """Yields the members without keeping them. Raises `tarfile.ReadError` for corruption that `tarfile` ignores."""
    file.seek(start)
    tar = tarfile.TarFile(fileobj=file, mode="r", errors="surrogateescape")
    while True:
        try:
            member = tar.next()
        except (MemoryError, OverflowError, ValueError):  # a long name or extended header of terabytes: damage
            raise tarfile.ReadError(f"no readable header at byte {tar.offset:,}") from None
        if member is None:
            break
        tar.members.clear()  # type: ignore[attr-defined]
        yield member
    file.seek(tar.offset)
    block = file.read(TAR_BLOCK_BYTES)
    if block.strip(b"\0") or 0 < len(block) < TAR_BLOCK_BYTES:
        raise tarfile.ReadError(f"no header at byte {tar.offset:,}")


def _key(member: tarfile.TarInfo) -> str:
    """Returns the key of the member's sample, as in WebDataset: the path up to the first dot of the file name."""
    folder, slash, name = member.name.rpartition("/")
    return folder + slash + name.partition(".")[0]


def _is_plain(member: tarfile.TarInfo) -> bool:
    """Returns whether the file name has a single suffix: ``0001.jpg``, but not ``0001.depth.png``."""
    return len(PurePosixPath(member.name).suffixes) == 1


def _pictures(members: Iterable[tarfile.TarInfo]) -> list[tarfile.TarInfo]:
    """Returns the pictures and clips of a sample: plain names first (`_is_plain`), files before links."""
    found = [m for m in members if Path(m.name).suffix.lower() in PICTURE_SUFFIXES | CLIP_SUFFIXES]
    return sorted(found, key=lambda member: (not _is_plain(member), not member.isfile()))


def _item(file: BinaryIO, shard: Path, members: list[tarfile.TarInfo]) -> Item:
    """Returns the sample as an item. Raises `UsageError` if it has no picture or its texts cannot be read."""
    by_suffix: dict[str, tarfile.TarInfo] = {}
    for member in sorted(filter(tarfile.TarInfo.isfile, members), key=lambda member: not _is_plain(member)):
        by_suffix.setdefault(Path(member.name).suffix.lower(), member)
    pictures = _pictures(members)
    if not pictures:
        raise UsageError("no picture in this sample")
    picture = pictures[0]
    if len(pictures) > 1 and not _is_plain(picture):
        names = ", ".join(sorted(PurePosixPath(member.name).name for member in pictures))
        raise UsageError(f"several pictures, {names}; expected a single one, or one named after the sample")
    if not picture.isfile():
        raise UsageError("a link instead of a picture; create the archive with tar --dereference --hard-dereference")
    if picture.issparse() or picture.size > MAX_FILE_BYTES:
        sparse = "a sparse member of " if picture.issparse() else ""
        raise UsageError(f"{sparse}{picture.size:,} bytes; expected a complete picture of at most {MAX_FILE_BYTES:,}")
    texts = {suffix: _text(file, by_suffix[suffix]) for suffix in TEXTS if suffix in by_suffix}
    record = _record(texts.pop(".json", "{}"))
    plain = [line for text in texts.values() for line in text.splitlines() if line.strip()]
    said = [record[key] for key in text_keys(DATA_KEYS, record)] or ([""] if texts else [])
    references = clean_captions(plain, ".txt") if plain else texts_of(said, ".json", record)
    split = normalize_split(str(record.get("split") or "")) or split_from_name(shard.name)
    kind = ClipMember if Path(picture.name).suffix.lower() in CLIP_SUFFIXES else Member
    return Item(path_id(f"{shard.stem}/{_key(picture)}"), kind(shard, picture), references, split)


def _text(file: BinaryIO, member: tarfile.TarInfo) -> str:
    suffix = Path(member.name).suffix
    if member.size > LONGEST_TEXT:
        raise UsageError(f"{suffix}: expected at most {LONGEST_TEXT:,} bytes of text, got {member.size:,}")
    file.seek(member.offset_data)
    try:
        return decode_text(file.read(member.size))
    except UnicodeDecodeError as error:
        raise UsageError(f"{suffix}: not valid UTF-8 (byte {error.start:,})") from None


def _record(text: str) -> dict[str, Any]:
    try:
        record = parse_json(text)
    except ValueError as error:
        raise UsageError(f".json: invalid JSON ({error})") from None
    return record if isinstance(record, dict) else {"captions": record}


class Member(PackedPicture):
    """A picture in a tar file, located by its byte range."""

    __slots__ = ("_size", "_start")

    def __init__(self, path: Path, member: tarfile.TarInfo) -> None:
        super().__init__(path, member.name)
        self._start, self._size = member.offset_data, member.size

    def address(self) -> str:
        """Returns the address and the position of the first byte, because a tar file can contain a name twice."""
        return f"{super().address()}//{self._start}"

    def data(self) -> bytes:
        """See `PackedPicture`."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._start)
                whole = self._start + self._size <= os.fstat(file.fileno()).st_size
                data = file.read(self._size) if whole else b""
        except OSError as error:
            raise PictureError(f"{self.name}: {error.strerror or error}") from None
        if len(data) < self._size:
            raise PictureError(f"{self.name}: truncated (the file ends before the picture does)")
        return data


class ClipMember(PackedClip, Member):
    """A clip in a tar file."""

    __slots__ = ()


def refuse_compressed(file: BinaryIO, shard: Path) -> None:
    """Raises `UsageError` for a compressed shard; the message says how to unpack it."""
    program = COMPRESSED.get(file.read(2))
    if program:
        raise UsageError(f"{shard}: compressed archives do not allow random access; run: {program} {shard}")


READERS.register(
    Reader(
        name="webdataset",
        factory=read,
        help="WebDataset: tar files of samples",
        layouts=(
            (
                "WebDataset tars: `0001.jpg`, `0001.txt`, `0001.json`",
                "`data.tar`, `'webdataset:shards/{00000..00012}.tar'`, `webdataset:shards`",
            ),
        ),
        suffixes=(".tar",),
        folder_suffixes=(".tar",),
    )
)
