"""The results of all shards as one data set, in the order of the data: its bytes do not depend on who made them.

Lines of JSON as they are; as CSV; as Parquet (extra ``parquet``); or as a WebDataset tar of the pictures with their
captions. Nothing but one shard is in memory; that no id is there twice is checked on disk.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from tellapart.data.pictures import CLIP_SUFFIXES, SUFFIXES, open_image
from tellapart.data.tables import RowIndex
from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.jobs.job import Job
from tellapart.jobs.manifest import open_shard
from tellapart.jobs.storage import open_folder
from tellapart.progress import track
from tellapart.types import Item
from tellapart.utils.text import parse_json

FORMATS = (".jsonl", ".csv", ".parquet", ".tar")
NAMED = 5
AGAIN = "run the command that began the job again"


def check_format(out: str) -> str:
    """Returns the suffix of a result. Raises `UsageError` for one that is not known."""
    suffix = PurePosixPath(out).suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(f"{out}: cannot tell the format from this name; expected one of {' '.join(FORMATS)}")
    return suffix


def merge_lines(job: Job, out: str, *, without_failed: bool = False) -> int:
    """Joins a job's lines into ``out`` (a path or an address). Returns how many there are.

    Raises `UsageError` where shards are not done, unless ``without_failed`` and these were set aside, and where an id
    is there twice.
    """
    suffix = check_format(out)
    numbers = wanted_shards(job, without_failed)
    with TemporaryDirectory(prefix="tellapart-merge-") as scratch:
        target = Path(scratch) / f"merged{suffix}"
        rows = _counted(job, numbers, RowIndex.open())
        if suffix == ".jsonl":
            count = _jsonl(rows, target)
        elif suffix == ".csv":
            count = _csv(rows, target)
        elif suffix == ".parquet":
            count = _parquet(rows, target)
        else:
            count = _tar(job, rows, target)
        folder, _, name = out.rpartition("/")
        open_folder(folder or ("/" if out.startswith("/") else ".")).put(target, name)
    return count


def wanted_shards(job: Job, without_failed: bool) -> list[int]:
    """Returns the shards that are to be joined. Raises `UsageError`, see `merge_lines`."""
    done = {number for number in job.done() if number < job.shards}
    known = done | {one["shard"] for one in job.failed() if without_failed and one["shard"] < job.shards}
    if len(known) < job.shards:
        first = next(number for number in range(job.shards) if number not in known)
        raise UsageError(
            f"{job.path}: {job.shards - len(known):,} of {job.shards:,} shards are not done, such as {first}; {AGAIN}"
        )
    return sorted(done)


def results(job: Job, numbers: list[int], label: str) -> Iterator[tuple[int, Path]]:
    """(number, local path) of the results of shards, compared with what was written; each path is there for its turn.

    Raises `TellapartError` where one is damaged.
    """
    for number in track(numbers, label=label):
        with TemporaryDirectory(prefix="tellapart-merge-") as scratch:
            try:
                path = job.result(number, Path(scratch))
            except TellapartError as error:
                raise TellapartError(f"{error}; {AGAIN}") from None
            yield number, path


def _counted(job: Job, numbers: list[int], index: RowIndex) -> Iterator[tuple[int, bytes]]:
    """(number of the shard, line) of all lines; at the end, no id may have been there twice."""
    row = 0
    for number, path in results(job, numbers, "joining shards"):
        with path.open("rb") as file:
            for line in file:
                row += 1
                index.add(str(parse_json(line.decode())["id"]), (row, number))
                yield number, line
    index.close()
    doubles = [next(index.places(item))[0] for item, _ in zip(index.doubles(), range(NAMED), strict=False)]
    if doubles:
        raise UsageError(
            f"{job.path}: some ids are there more than once, such as that of row {doubles[0]:,}; give every picture "
            "its own"
        )


def _jsonl(rows: Iterator[tuple[int, bytes]], target: Path) -> int:
    count = 0
    with target.open("wb") as file:
        for _, line in rows:
            file.write(line)
            count += 1
    return count


def _csv(rows: Iterator[tuple[int, bytes]], target: Path) -> int:
    count = 0
    with target.open("w", encoding="utf-8", newline="") as file:
        file.write("id,caption\n")
        written = csv.writer(file, lineterminator="\n")
        for _, line in rows:
            record = parse_json(line.decode())
            if "captions" in record:
                raise UsageError("several captions of a picture go to .jsonl, .parquet or .tar; name such a file")
            written.writerow([record["id"], record["caption"]])
            count += 1
    return count


def _parquet(rows: Iterator[tuple[int, bytes]], target: Path) -> int:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtra("parquet", "writing Parquet") from None
    count, group = 0, 0
    texts: dict[str, list[Any]] = {"id": [], "captions": []}
    schema = pyarrow.schema([("id", pyarrow.string()), ("captions", pyarrow.list_(pyarrow.string()))])
    with pyarrow.parquet.ParquetWriter(target, schema) as writer:
        for number, line in rows:
            if number != group and texts["id"]:  # a row group for each shard
                writer.write_table(pyarrow.table(texts, schema))
                texts = {"id": [], "captions": []}
            group = number
            record = parse_json(line.decode())
            texts["id"].append(str(record["id"]))
            texts["captions"].append(list(_captions(record)))
            count += 1
        if texts["id"]:
            writer.write_table(pyarrow.table(texts, schema))
    return count


def _tar(job: Job, rows: Iterator[tuple[int, bytes]], target: Path) -> int:
    """Writes a sample for each line: its picture as it is in the data, its captions and its id."""
    count, row = 0, next(rows, None)
    with target.open("wb") as file:
        for shard in job.manifest():
            if row is None or row[0] != shard.number:
                continue
            with open_shard(shard, job.folder) as dataset:
                items = iter(dataset)
                while row is not None and row[0] == shard.number:
                    record = parse_json(row[1].decode())
                    item = next((item for item in items if item.id == str(record["id"])), None)
                    if item is None:
                        raise TellapartError(f"{shard.name}: has changed since the job was done; run it anew")
                    _sample(file, f"{count:09d}-{_readable(item.id)}", item, record)
                    count, row = count + 1, next(rows, None)
        file.write(b"\0" * (2 * tarfile.BLOCKSIZE))
    return count


def _readable(name: str) -> str:
    """Returns a name in letters that every file system and reader of tars takes, without its suffix and not too
    long.
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", PurePosixPath(name).stem).strip("-")[:60]


def _sample(file: BinaryIO, key: str, item: Item, record: dict[str, Any]) -> None:
    data, suffix = _bytes_of(item)
    captions = list(_captions(record))
    texts = {"id": item.id, "captions": captions} | ({"split": item.split} if item.split else {})
    members = [
        (f"{key}{suffix}", data),
        (f"{key}.json", (json.dumps(texts, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")),
    ]
    if all(len(caption.splitlines()) == 1 for caption in captions):  # else a line there would be a part of one
        text = "\n".join(captions) + "\n"
        members.append((f"{key}.txt", text.encode("utf-8", "backslashreplace")))
    for name, content in members:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        file.write(member.tobuf(tarfile.USTAR_FORMAT))
        file.write(content)
        file.write(b"\0" * (-len(content) % tarfile.BLOCKSIZE))


def _bytes_of(item: Item) -> tuple[bytes, str]:
    """Returns the encoded picture, and a suffix by which it is read again; one that no file holds becomes a PNG."""
    picture: Any = item.picture
    if hasattr(picture, "read"):
        data = bytes(picture.read().data)
        suffix = PurePosixPath(picture.name.rpartition("#")[2]).suffix.lower()
        return data, suffix if suffix in SUFFIXES | CLIP_SUFFIXES else _suffix_of(data, picture.name)
    made = io.BytesIO()
    picture.image().save(made, "PNG")
    return made.getvalue(), ".png"


def _suffix_of(data: bytes, name: str) -> str:
    """Returns the suffix by the content, where the name says nothing (``photo.jpg?w=300``, ``a.jpg.1``)."""
    with open_image(data, name) as found:
        format = str(found.format)
    return {"JPEG": ".jpg", "MPO": ".jpg", "JPEG2000": ".jp2"}.get(format, f".{format.lower()}")


def _captions(record: dict[str, Any]) -> Iterator[str]:
    yield from record["captions"] if "captions" in record else [record["caption"]]
