"""Merges the captions of all shards into one file: JSON Lines, CSV, Parquet (with the extra ``parquet``) or a
WebDataset tar.

Only one shard is in memory at a time, plus 24 bytes per line to detect duplicate ids, and the texts of a file that is
replaced.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from tellapart.captions.authors import Author
from tellapart.captions.formats import METADATA, texts_by_id
from tellapart.captions.journal import new_change
from tellapart.captions.provenance import Provenance
from tellapart.captions.replacement import KEEP_ALL, guard_edited, lines_in
from tellapart.captions.text_hash import text_hash
from tellapart.data.row_index import RowIndex
from tellapart.data.webdataset_writing import end_tar, write_sample
from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.jobs.job import ANEW, MANIFEST, Job
from tellapart.jobs.shard import open_shard
from tellapart.jobs.shard_results import results, wanted_shards
from tellapart.jobs.storage import open_folder
from tellapart.utils.messages import say
from tellapart.utils.outputs import check_output, write_output
from tellapart.utils.strict_json import parse_json
from tellapart.utils.urls import is_url

Rows = Iterator[tuple[int, bytes, dict[str, Any]]]  # a line's shard, its bytes, and its record


def check_format(out: str) -> str:
    """Returns a result file's suffix. Raises `UsageError` for an unknown suffix, and for `METADATA`."""
    if PurePosixPath(out).name == METADATA:
        raise UsageError(f"-o {out}: metadata.jsonl cannot be written with --workers or --ray; use -o captions.jsonl")
    suffix = PurePosixPath(out).suffix.lower()
    if suffix not in WRITERS:
        raise UsageError(f"-o {out}: cannot infer the format from this name; expected one of {' '.join(WRITERS)}")
    return suffix


def merge_lines(job: Job, out: str, *, without_failed: bool = False) -> int:
    """Merges a job's lines into ``out`` (a path or a URL). Returns the number of the job's lines.

    Omits pictures without a caption that a person marked as decorative. Raises `TellapartError` if an id occurs twice,
    or if some shards are not done. With ``without_failed``, shards that were set aside are ignored.
    """
    suffix = check_format(out)
    ours = not is_url(out) and guard_edited(Path(out), KEEP_ALL)
    if not (ours or is_url(out)):
        check_output(Path(out))
    logged = not is_url(out) and suffix in (".jsonl", ".csv")
    known = Provenance.open(Path(out)) if logged else None
    lines = lines_in(Path(out)) if logged and ours else []
    before = texts_by_id(lines)
    decorative = {key for key in known.rows if known.is_decorative(key) and key not in before} if known else set[str]()
    numbers, index = wanted_shards(job, without_failed), RowIndex()
    if known is not None:
        known.record_marks(lines)
    with TemporaryDirectory(prefix="tellapart-merge-") as scratch:
        target = Path(scratch) / f"merged{suffix}"
        WRITERS[suffix](job, _rows(job, numbers, index, decorative), target)
        if is_url(out):
            folder, _, name = out.rpartition("/")
            open_folder(folder).put(target, name)
        else:
            write_output(Path(out), lambda temporary: shutil.move(target, temporary), own=ours)
    if known is not None:
        if decorative:
            say(f"{out}: {len(decorative):,} pictures that are marked as decorative get no caption")
        _record_merged(job, known, before, decorative, numbers)
    return len(index)


def _record_merged(
    job: Job, known: Provenance, before: Mapping[str, str], decorative: Collection[str], numbers: Sequence[int]
) -> None:
    """Writes a log next to the result, as the command does without a job, so that the command can resume.

    before: the texts that were replaced, by id; their marks do not pass to the new texts.
    """
    of_job = ("work", "data", "code", "prompts")
    settings = {key: value for key, value in job.value["deciding"].items() if key not in of_job}
    settings |= job.value.get("models") or {}
    change = new_change("caption", Author.from_settings(settings))
    known.begin(settings)
    for number in numbers:
        with TemporaryDirectory(prefix="tellapart-merge-") as part:
            if (path := job.pictures(number, Path(part))) is not None:
                rows = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
                for row in rows:
                    row.pop("file", None)  # from workers of earlier versions, where it is empty
                some = {str(row.pop("id")): row for row in rows}
                same = {key for key, row in some.items() if key in before and row.get("text") == text_hash(before[key])}
                # A merge that is repeated changes nothing.
                known.record({key: row for key, row in some.items() if key in same})
                new = {key: row for key, row in some.items() if key not in same and key not in decorative}
                known.record(new, change, before)


def _rows(job: Job, numbers: list[int], index: RowIndex, decorative: Collection[str]) -> Rows:
    """Yields the lines of all but ``decorative`` pictures, and adds all lines to ``index``. Afterwards, checks that no
    id occurred twice.
    """
    row = 0
    for number, path in results(job, numbers, "merging shards"):
        with path.open("rb") as file:
            for line in file:
                row += 1
                record = parse_json(line.decode())
                index.add(str(record["id"]), (row, number))
                if str(record["id"]) not in decorative:
                    yield number, line, record
    index.close()
    for double in index.doubles()[:1]:
        first = next(index.places(double))[0]
        raise TellapartError(f"{job.path}: some ids occur more than once (first: row {first:,}); ids must be unique")


def _jsonl(job: Job, rows: Rows, target: Path) -> None:
    with target.open("wb") as file:
        file.writelines(line for _, line, _ in rows)


def _csv(job: Job, rows: Rows, target: Path) -> None:
    with target.open("w", encoding="utf-8", newline="") as file:
        written = csv.writer(file, lineterminator="\n")
        written.writerow(("id", "caption"))
        for _, _, record in rows:
            if "captions" in record:
                raise UsageError(
                    "writing several captions per picture requires a .jsonl, .parquet or .tar file; choose one with -o"
                )
            written.writerow([record["id"], record["caption"]])


def _parquet(job: Job, rows: Rows, target: Path) -> None:
    """Writes one row group per shard."""
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtra("parquet", "writing Parquet") from None
    schema = pyarrow.schema([("id", pyarrow.string()), ("captions", pyarrow.list_(pyarrow.string()))])
    with pyarrow.parquet.ParquetWriter(target, schema) as writer:
        for _, group in groupby(rows, itemgetter(0)):
            values = [{"id": str(record["id"]), "captions": _captions(record)} for _, _, record in group]
            writer.write_table(pyarrow.Table.from_pylist(values, schema))


def _tar(job: Job, rows: Rows, target: Path) -> None:
    """Writes one sample per line: the picture as stored in the data, its captions and its id."""
    count, manifest = 0, job.manifest()
    with target.open("wb") as file:
        for number, group in groupby(rows, itemgetter(0)):
            shard = next((shard for shard in manifest if shard.number == number), None)
            if shard is None:
                raise TellapartError(f"{job.path}/{MANIFEST}: shard {number} is missing; {ANEW}")
            with open_shard(shard, job.folder) as dataset:
                items = iter(dataset)
                for _, _, record in group:
                    item = next((item for item in items if item.id == str(record["id"])), None)
                    if item is None:
                        raise TellapartError(f"{shard.name} has changed since the job finished; run the job again")
                    write_sample(file, count, item, _captions(record))
                    count += 1
        end_tar(file)


def _captions(record: dict[str, Any]) -> list[str]:
    return [*record["captions"]] if "captions" in record else [record["caption"]]


WRITERS: dict[str, Callable[[Job, Rows, Path], None]] = {
    ".jsonl": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
    ".tar": _tar,
}
