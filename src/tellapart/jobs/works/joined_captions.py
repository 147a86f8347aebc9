"""Merges the captions of all shards into one file: JSON Lines, CSV, Parquet (with the extra ``parquet``) or a
WebDataset tar.

Only one shard is in memory at a time, plus 24 bytes per line to detect duplicate ids.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from tellapart.captions.formats import METADATA
from tellapart.captions.provenance import Provenance
from tellapart.captions.replacement import KEEP_ALL, guard_edited
from tellapart.captions.webdataset import end_tar, write_sample
from tellapart.data.row_index import RowIndex
from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.jobs.job import Job
from tellapart.jobs.shard import open_shard
from tellapart.jobs.storage import open_folder
from tellapart.jobs.works.shards import results, wanted_shards
from tellapart.utils.outputs import check_output, write_output
from tellapart.utils.strict_json import parse_json
from tellapart.utils.urls import is_url

RESULT_SUFFIXES = (".jsonl", ".csv", ".parquet", ".tar")


def check_format(out: str) -> str:
    """Returns a result file's suffix. Raises `UsageError` for an unknown suffix, and for `METADATA`."""
    if PurePosixPath(out).name == METADATA:
        raise UsageError(f"-o {out}: metadata.jsonl cannot be written with --workers or --ray; use -o captions.jsonl")
    suffix = PurePosixPath(out).suffix.lower()
    if suffix not in RESULT_SUFFIXES:
        raise UsageError(
            f"-o {out}: cannot infer the format from this name; expected one of {' '.join(RESULT_SUFFIXES)}"
        )
    return suffix


def merge_lines(job: Job, out: str, *, without_failed: bool = False) -> int:
    """Merges a job's lines into ``out`` (a path or a URL). Returns the number of lines.

    Raises `TellapartError` if an id occurs twice, or if some shards are not done. With ``without_failed``, shards that
    were set aside are ignored.
    """
    suffix = check_format(out)
    ours = not is_url(out) and guard_edited(Path(out), KEEP_ALL)
    if not (ours or is_url(out)):
        check_output(Path(out))
    numbers = wanted_shards(job, without_failed)
    with TemporaryDirectory(prefix="tellapart-merge-") as scratch:
        target = Path(scratch) / f"merged{suffix}"
        rows = _counted(job, numbers, RowIndex())
        if suffix == ".jsonl":
            count = _jsonl(rows, target)
        elif suffix == ".csv":
            count = _csv(rows, target)
        elif suffix == ".parquet":
            count = _parquet(rows, target)
        else:
            count = _tar(job, rows, target)
        if is_url(out):
            folder, _, name = out.rpartition("/")
            open_folder(folder).put(target, name)
        else:
            write_output(Path(out), lambda temporary: shutil.move(target, temporary), own=ours)
    if not is_url(out) and suffix in (".jsonl", ".csv"):
        _record_merged(job, Path(out), numbers)
    return count


def _record_merged(job: Job, out: Path, numbers: Sequence[int]) -> None:
    """Writes a log next to ``out``, as the command does without a job, so that the command can resume."""
    known = Provenance.open(out)
    of_job = ("work", "data", "code", "prompts")
    settings = {key: value for key, value in job.value["deciding"].items() if key not in of_job}
    known.begin(settings | (job.value.get("models") or {}))
    for number in numbers:
        with TemporaryDirectory(prefix="tellapart-merge-") as part:
            if (path := job.pictures(number, Path(part))) is not None:
                rows = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
                known.record({row.pop("id"): row for row in rows})


def _counted(job: Job, numbers: list[int], index: RowIndex) -> Iterator[tuple[int, bytes]]:
    """Yields (shard number, line) for all lines. Afterwards, checks that no id occurred twice."""
    row = 0
    for number, path in results(job, numbers, "merging shards"):
        with path.open("rb") as file:
            for line in file:
                row += 1
                index.add(str(parse_json(line.decode())["id"]), (row, number))
                yield number, line
    index.close()
    for double in index.doubles()[:1]:
        first = next(index.places(double))[0]
        raise TellapartError(f"{job.path}: some ids occur more than once (first: row {first:,}); ids must be unique")


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
                raise UsageError(
                    "writing several captions per picture requires a .jsonl, .parquet or .tar file; choose one with -o"
                )
            written.writerow([record["id"], record["caption"]])
            count += 1
    return count


def _parquet(rows: Iterator[tuple[int, bytes]], target: Path) -> int:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtra("parquet", "writing Parquet") from None
    count, group = 0, 0
    texts: dict[str, list[Any]] = {"id": [], "captions": []}
    schema = pyarrow.schema([("id", pyarrow.string()), ("captions", pyarrow.list_(pyarrow.string()))])
    with pyarrow.parquet.ParquetWriter(target, schema) as writer:
        for number, line in rows:
            if number != group and texts["id"]:  # one row group per shard
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
    """Writes one sample per line: the picture as stored in the data, its captions and its id."""
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
                        raise TellapartError(f"{shard.name} has changed since the job finished; run the job again")
                    write_sample(file, count, item, list(_captions(record)))
                    count, row = count + 1, next(rows, None)
        end_tar(file)
    return count


def _captions(record: dict[str, Any]) -> Iterator[str]:
    yield from record["captions"] if "captions" in record else [record["caption"]]
