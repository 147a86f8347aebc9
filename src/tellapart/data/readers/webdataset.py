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
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tellapart.data.caption_values import clean_captions
from tellapart.data.dataset import ReadItems
from tellapart.data.file_names import CLIP_SUFFIXES, READABLE_SUFFIXES
from tellapart.data.file_patterns import expand_pattern, files_below, is_hidden
from tellapart.data.listed_pictures import missing_reason
from tellapart.data.options import Options
from tellapart.data.path_ids import path_id
from tellapart.data.pictures import MAX_FILE_BYTES, PackedClip, PackedPicture
from tellapart.data.reader import READERS, Reader
from tellapart.data.record_keys import DATA_KEYS, text_keys
from tellapart.data.row_errors import RowError
from tellapart.data.row_index import RowPosition
from tellapart.data.row_source import RowSource
from tellapart.data.skipped import Skipped
from tellapart.data.splits import normalize_split, split_from_name
from tellapart.data.text_files import decode_text, parsed_json
from tellapart.errors import UsageError
from tellapart.types import Item

TAR_BLOCK_BYTES = tarfile.BLOCKSIZE
SHARD = 1 << 48  # position = shard · SHARD + byte
LONGEST_TEXT = 1 << 20
COMPRESSED = {b"\x1f\x8b": "gunzip", b"BZ": "bunzip2", b"\xfd7": "unxz", b"\x28\xb5": "unzstd"}
TEXTS = (".txt", ".caption")
Sample = tuple[BinaryIO, Path, list[tarfile.TarInfo]]  # an open shard, its path, and the members of a sample


def read(path: Path, options: Options) -> ReadItems:
    """Returns items in the order of the shards and their members."""
    shards = files_below(path, "*.tar") if path.is_dir() else expand_pattern(path)
    if not shards:
        raise UsageError(f"{path}: no *.tar in this folder")
    return Shards(shards, str(path)).items(options, merge=False)


class Shards(RowSource):
    """The samples of several tar files. A row is the open file, its path and the sample's members."""

    def __init__(self, shards: Sequence[Path], name: str) -> None:
        self._shards, self.name = shards, name

    def rows(self, missing: Skipped) -> Iterator[tuple[RowPosition, Sample]]:
        """See `RowSource`. Reads a damaged shard up to the damage."""
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
                        pictures = _pictures(members)  # without a plain name, `item` rejects several pictures
                        for other in pictures[1:] if pictures and _is_plain(pictures[0]) else ():
                            missing.add(f"{shard}#{other.name}", f"extra picture; sample {_key(other)} already has one")
                        yield (place * SHARD + start, number), (file, shard, members)
            except (tarfile.TarError, OSError) as error:
                missing.add(str(shard), f"damaged; read up to this point: {getattr(error, 'strerror', None) or error}")

    def rows_at(self, places: Iterable[RowPosition]) -> Iterator[Sample]:
        """See `RowSource`. Keeps a shard open while consecutive positions are in it."""
        starts = (divmod(place, SHARD) for place, _ in places)
        for number, group in groupby(starts, key=itemgetter(0)):
            shard = self._shards[number]
            try:
                with shard.open("rb") as file:
                    following: Iterator[tuple[int, list[tarfile.TarInfo]]] = iter(())
                    for _, start in group:
                        found = next(following, None)
                        if found is None or found[0] != start:
                            following = samples(file, start)
                            found = next(following)
                        yield file, shard, found[1]
            except (tarfile.TarError, OSError, StopIteration) as error:
                raise UsageError(f"{shard}: the file has changed since it was opened ({error})") from None

    def item(self, row: Sample, place: RowPosition) -> Item:
        """See `RowSource`."""
        file, shard, members = row
        try:
            return _item(file, shard, members)
        except (UsageError, OSError) as error:
            raise RowError(f"{shard}#{_key(members[0])}", str(error)) from None


def samples(file: BinaryIO, start: int = 0) -> Iterator[tuple[int, list[tarfile.TarInfo]]]:
    """Yields (first byte, members) for every sample, starting at byte ``start``.

    Raises `tarfile.TarError` for damaged data, without yielding the last sample, which may lack some of its members.
    """
    files = (member for member in _members(file, start) if member.isfile() or member.islnk() or member.issym())
    for _, group in groupby((each for each in files if not is_hidden(PurePosixPath(each.name))), key=_key):
        members = list(group)
        yield members[0].offset, members


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
    found = [m for m in members if Path(m.name).suffix.lower() in READABLE_SUFFIXES]
    return sorted(found, key=lambda member: (not _is_plain(member), not member.isfile()))


def _item(file: BinaryIO, shard: Path, members: list[tarfile.TarInfo]) -> Item:
    """Returns the sample as an item. Raises `UsageError` if it has no picture or its texts cannot be read."""
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
    files = sorted(filter(tarfile.TarInfo.isfile, reversed(members)), key=_is_plain)  # the last one takes precedence
    by_suffix = {Path(member.name).suffix.lower(): member for member in files}
    texts = [_text(file, by_suffix[suffix]) for suffix in TEXTS if suffix in by_suffix]
    record = parsed_json(_text(file, by_suffix[".json"]), ".json") if ".json" in by_suffix else {}
    record = record if isinstance(record, dict) else {"captions": record}
    plain = [line for text in texts for line in text.splitlines() if line.strip()]
    said = [record[key] for key in text_keys(DATA_KEYS, record)] or ([""] if texts else [])
    references = clean_captions(plain, ".txt") if plain else clean_captions(said, ".json", record)
    split = normalize_split(str(record.get("split") or "")) or split_from_name(shard.name)
    kind = PackedClip if Path(picture.name).suffix.lower() in CLIP_SUFFIXES else PackedPicture
    load = partial(member_bytes, shard, picture.offset_data, picture.size)
    source = kind(shard, picture.name, load, at=str(picture.offset_data))  # a tar file can contain a name twice
    return Item(path_id(f"{shard.stem}/{_key(picture)}"), source, references, split)


def _text(file: BinaryIO, member: tarfile.TarInfo) -> str:
    suffix = Path(member.name).suffix
    if member.size > LONGEST_TEXT:
        raise UsageError(f"{suffix}: expected at most {LONGEST_TEXT:,} bytes of text, got {member.size:,}")
    file.seek(member.offset_data)
    try:
        return decode_text(file.read(member.size))
    except UnicodeDecodeError as error:
        raise UsageError(f"{suffix}: not valid UTF-8 (byte {error.start:,})") from None


def member_bytes(shard: Path, start: int, size: int) -> bytes:
    """Returns the bytes of a member. Raises OSError or ValueError."""
    with shard.open("rb") as file:
        file.seek(start)
        whole = start + size <= os.fstat(file.fileno()).st_size
        data = file.read(size) if whole else b""
    if len(data) < size:
        raise ValueError("truncated (the file ends before the picture does)")
    return data


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
