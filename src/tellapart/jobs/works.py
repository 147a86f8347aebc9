"""The work on a shard, the worker that does it, and the results of all shards joined to one.

A worker is one process, which keeps its models loaded: it makes a `Work` once and hands it one shard after the other.
Errors come back as values, one line each: an exception that Ray carries would have to be made anew in the driver. The
driver imports this module and loads no model.

Results are joined in the order of the data, so their bytes do not depend on who made them: as lines of JSON, CSV,
Parquet (extra ``parquet``), or a WebDataset tar of the pictures with their captions. Only one shard is in memory at a
time; duplicate ids are detected on disk.
"""

from __future__ import annotations

import csv
import gc
import hashlib
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np

from tellapart import __version__
from tellapart.boost.job import BoostJob as BoostJob
from tellapart.boost.job import check_out
from tellapart.boost.ledger import Ledger
from tellapart.boost.output import Output, read_records, record
from tellapart.boost.stages import stages as make_stages
from tellapart.boost.types import Stage
from tellapart.captioners import load_captioner
from tellapart.captioners.captioner import Captioner
from tellapart.captions.lines import METADATA, end_tar, json_line, write_sample
from tellapart.captions.provenance import Provenance, TextRow
from tellapart.captions.writers import Replace, guard_edited
from tellapart.data import Dataset
from tellapart.data.tables import RowIndex
from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.features.encoded import EncodedRows, encode_rows, take_rows
from tellapart.features.store import FeatureStore
from tellapart.inference.caption import CaptionEngine, weights_of
from tellapart.inference.describers import open_backends
from tellapart.inference.prompts import has_fields
from tellapart.jobs.job import ANEW, JOB, Job
from tellapart.jobs.manifest import Shard, open_shard, pictures_of
from tellapart.jobs.scratch import scratch_folder
from tellapart.jobs.storage import DiskFolder, Folder, open_folder
from tellapart.models.decoding import Decoding
from tellapart.models.devices import hardware, resolve_device, resolve_precision
from tellapart.models.onednn import packed_linears
from tellapart.scorers import load_scorer
from tellapart.scorers.base import Scorer
from tellapart.utils.files import check_output, check_removable, is_url, sha256, write_output
from tellapart.utils.messages import parse_json, track
from tellapart.utils.registry import allow_code

FORMATS = (".jsonl", ".csv", ".parquet", ".tar")
NAMED = 5
AGAIN = "run the command that began the job again"


def check_format(out: str) -> str:
    """Returns the suffix of a result. Raises `UsageError` for one that is not known, and for `METADATA`."""
    if PurePosixPath(out).name == METADATA:
        raise UsageError(
            f"{out}: names the files of its folder, which only the command without --workers and --ray writes; type "
            "-o captions.jsonl"
        )
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
    own = not is_url(out) and guard_edited(Path(out), Replace())
    if not (own or is_url(out)):
        check_output(Path(out))
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
        if is_url(out):
            folder, _, name = out.rpartition("/")
            open_folder(folder).put(target, name)
        else:
            write_output(Path(out), lambda temporary: shutil.move(target, temporary), own=own)
    if not is_url(out) and suffix in (".jsonl", ".csv"):
        _record_merged(job, Path(out), numbers)
    return count


def _record_merged(job: Job, out: Path, numbers: Sequence[int]) -> None:
    """Writes into the log beside ``out`` what the plain command would have written there, so that it goes on."""
    known = Provenance.open(out)
    of_job = ("work", "data", "code", "prompts")
    settings = {key: value for key, value in job.value["deciding"].items() if key not in of_job}
    known.begin(settings | (job.value.get("models") or {}))
    for number in numbers:
        with TemporaryDirectory(prefix="tellapart-merge-") as part:
            if (path := job.pictures(number, Path(part))) is not None:
                rows = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
                known.record({row["id"]: TextRow().with_line(row) for row in rows})


def rows_file(out: Path) -> Path:
    """Returns the list of a shard's captions in the form of the log, beside the shard's result."""
    return out.with_name(out.name + ".pictures.jsonl")


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
                    write_sample(file, count, item, list(_captions(record)))
                    count, row = count + 1, next(rows, None)
        end_tar(file)
    return count


def _captions(record: dict[str, Any]) -> Iterator[str]:
    yield from record["captions"] if "captions" in record else [record["caption"]]


@dataclass
class Done:
    """The result of a shard: items seen and written, those left out by (name, reason), and further counts."""

    items: int
    written: int
    left_out: list[tuple[str, str]] = field(default_factory=list)
    left_out_count: int = 0
    more: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: Dataset, written: int, **more: Any) -> Done:
        """Returns the counts of a shard whose missing and unreadable pictures are listed in it."""
        lists = (dataset.missing, dataset.unreadable)
        entries = [entry for found in lists for entry in found][:MOST_NAMED]
        return cls(len(dataset) + len(dataset.missing), written, entries, sum(map(len, lists)), more)


class Work(Protocol):
    """Makes the result of a shard."""

    def models(self) -> dict[str, Any]:
        """Returns what only the loaded models know of themselves: the same in all workers of a job."""
        ...

    def run(self, dataset: Dataset, out: Path) -> Done:
        """Writes the result for these items to the file ``out``. Its bytes depend on the items and settings alone.

        Beside it may lie a list of the pictures, see `rows_file`.
        """
        ...


MOST_NAMED = 100  # pictures that could not be read, named for each shard


class Captions:
    """Captions by one captioner, as `tellapart.inference.caption.caption_pictures` writes them to a ``.jsonl``."""

    def __init__(
        self, captioner: Captioner, decoding: Decoding, batch_size: int, features: str | None, prompts: str | None
    ) -> None:
        """prompts: the job's folder, where pictures have prompts of their own."""
        self._captioner, self._decoding, self._prompts = captioner, decoding, prompts
        self._batch_size, self._features = batch_size, features

    @classmethod
    def open(
        cls,
        captioner: str,
        decoding: dict[str, Any],
        batch_size: int,
        features: str | None,
        device: str,
        precision: str,
        code: list[str],
        prompts: str | None = None,
    ) -> Captions:
        """With the captioner of that name, loaded; ``code`` is what may run for it.

        Raises `UsageError` for a captioner whose own prompt has fields: those are filled before the job.
        """

        allow_code(*code)
        place = resolve_device(device)
        loaded = load_captioner(captioner, place, resolve_precision(precision, place))
        if prompts is None and has_fields(own := str(loaded.chosen.get("prompt") or "")):
            raise UsageError(f"{captioner}: its prompt has fields, which workers do not fill; type --prompt '{own}'")
        return cls(loaded, Decoding(**decoding), batch_size, features, prompts)

    def models(self) -> dict[str, Any]:
        """See `Work`."""
        return weights_of(self._captioner, None) | {"precision": hardware(self._captioner.model)["precision"]}

    def run(self, dataset: Dataset, out: Path) -> Done:
        """See `Work`."""
        prompts = None if self._prompts is None else Job.prompts(self._prompts, {item.id for item in dataset})
        engine = CaptionEngine.open(
            self._captioner, self._decoding, None, dataset.unreadable, self._features, self._batch_size, prompts
        )
        written = empty = 0
        with (
            packed_linears(self._captioner.model),
            out.open("w", encoding="utf-8", newline="\n") as file,
            rows_file(out).open("w", encoding="utf-8") as rows,
        ):
            for _, captions in engine.captions(dataset):
                file.writelines(json_line(one) for one in captions)
                rows.writelines(
                    TextRow.new("\n".join(one.texts), one.picture).line("", one.item.id) for one in captions
                )
                written += len(captions)
                empty += sum(not one.caption for one in captions)
        return Done.of(dataset, written, empty=empty)


SUFFIX = ".npz"
ROWS = 2**18  # a file of the result ends with the shard that reaches so many
WRITTEN = re.compile(r"\d{6,}\.(npy|txt)")


class Features:
    """Image features by one scorer, in ``.npz`` files of `tellapart.features.store`."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer, self._encoder = scorer, scorer.encoder

    @classmethod
    def open(cls, scorer: str, device: str, precision: str, code: list[str]) -> Features:
        """With the scorer of that name, loaded; ``code`` is what may run for it."""

        allow_code(*code)
        return cls(load_scorer(scorer, device, precision))

    def models(self) -> dict[str, Any]:
        """See `Work`."""
        return {"scorer_weights": self._scorer.fingerprint, "precision": self._encoder.precision}

    def run(self, dataset: Dataset, out: Path) -> Done:
        """See `Work`."""

        items = list(dataset)
        rows, errors = encode_rows(FeatureStore().table, items, self._encoder)
        kept = set(rows.ids)
        unreadable = [item.picture.name for item in items if item.id not in kept]
        for name, error in zip(unreadable, errors, strict=False):
            dataset.unreadable.add_error(name, error)
        rows.save(out)
        return Done.of(dataset, len(rows.ids))


def write_features(job: Job, out: str, *, without_failed: bool = False) -> int:
    """``OUT/000000.npy`` (N×D) and ``OUT/000000.txt`` (an id a line), and so on, in the order of the data.

    Files of another job that are there are removed. Returns the number of rows.
    """

    numbers, target = wanted_shards(job, without_failed), open_folder(out)
    check_features(out)
    for name in filter(WRITTEN.fullmatch, target.names("")):
        target.remove(name)
    with TemporaryDirectory(prefix="tellapart-merge-") as scratch:
        files = _Files(target, Path(scratch))
        for _, path in results(job, numbers, "writing features"):
            files.add(EncodedRows.load(path))
        files.finish()
    if not files.count:
        raise UsageError(f"{job.path}: not one picture could be read")
    return files.count


def check_features(out: str) -> None:
    """Raises `UsageError` if files in the folder ``out`` would count as features of this program and are not. An
    address is not looked at.
    """
    if not is_url(out):
        for name in filter(WRITTEN.fullmatch, open_folder(out).names("")):
            check_removable(Path(out).expanduser() / name)


class _Files:
    """Rows of many shards in files of about `ROWS` rows, each brought to ``target`` when it is full."""

    def __init__(self, target: Folder, scratch: Path) -> None:
        self._target, self._path = target, scratch / "rows.npy"
        self._ids: list[str] = []
        self._number = self.count = 0

    def add(self, rows: EncodedRows) -> None:
        """Writes a shard's rows behind the others."""

        if not rows.ids:
            return
        with self._path.open("r+b" if self._ids else "wb") as file:
            self._ids += rows.ids
            header = np.lib.format.header_data_from_array_1_0(rows.rows_ND)
            header["shape"] = (len(self._ids), *rows.rows_ND.shape[1:])
            np.lib.format.write_array_header_1_0(file, header)  # NumPy leaves room for the first axis to grow
            file.seek(0, 2)
            file.write(np.ascontiguousarray(rows.rows_ND).data)
        self.count += len(rows.ids)
        if len(self._ids) >= ROWS:
            self.finish()

    def finish(self) -> None:
        """Brings what was written to its place."""
        if self._ids:
            name, ids = f"{self._number:06d}", "".join(f"{id_}\n" for id_ in self._ids)
            if isinstance(self._target, DiskFolder):
                write_output(self._target.path / f"{name}.txt", ids)
                write_output(self._target.path / f"{name}.npy", lambda temporary: shutil.move(self._path, temporary))
            else:
                self._target.write(f"{name}.txt", ids.encode())
                self._target.put(self._path, f"{name}.npy")
            self._number += 1
            self._ids = []


def take_features(job: Job) -> int:
    """Brings the rows of a job into this machine's feature store. Returns how many there were."""

    store, count = FeatureStore().table, 0
    for _, path in results(job, wanted_shards(job, False), "taking features"):
        rows = EncodedRows.load(path)
        take_rows(store, rows)
        count += len(rows.ids)
    return count


class Boosts:
    """Boosted captions. Answers are kept in a ledger of this worker, and read from those of all.

    A shard without all its answers, because a server failed, is none: it is tried again, and asks only what is missing.
    """

    def __init__(
        self, stages: Sequence[Stage], out: Path, ledgers: Path, in_flight: int, per_reference: bool = False
    ) -> None:
        self._stages, self._out, self._ledgers, self._in_flight = stages, out, ledgers, in_flight
        self._per_reference = per_reference

    @classmethod
    def open(
        cls,
        stages: list[str],
        llm: str | None,
        mllm: str | None,
        prompts: str | None,
        out: str,
        ledgers: str,
        in_flight: int,
        device: str,
        precision: str,
        per_reference: bool = False,
    ) -> Boosts:
        """With backends of these names; ``out`` is where the joined result will lie, ``ledgers`` a shared folder."""
        blends, describes = open_backends(llm, mllm, None, device, precision)
        made = make_stages(stages, blends, describes, Path(prompts) if prompts else None)
        return cls(made, Path(out), Path(ledgers), in_flight, per_reference)

    def models(self) -> dict[str, Any]:
        """See `Work`."""
        prompts = {stage.name: hashlib.blake2b(stage.prompt.encode(), digest_size=16) for stage in self._stages}
        return {
            "stages": [
                {"name": stage.name, "model": stage.backend.name, "prompt": prompts[stage.name].hexdigest()}
                for stage in self._stages
            ],
            **({"per_reference": True} if self._per_reference else {}),
        }

    def run(self, dataset: Dataset, out: Path) -> Done:
        """See `Work`."""
        good: Counter[str] = Counter()
        written = unanswered = 0
        self._ledgers.mkdir(parents=True, exist_ok=True)
        first = dataset[0].id if len(dataset) else ""
        name = hashlib.blake2b(f"{dataset.spec}\0{first}".encode("utf-8", "backslashreplace"), digest_size=8)
        with (
            Ledger.open(self._ledgers / f"{name.hexdigest()}.jsonl") as ledger,
            out.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
        ):
            job = BoostJob(self._stages, ledger, self._in_flight, self._per_reference)
            for done in job.run(iter(dataset)):
                if done.unreadable is not None:
                    dataset.unreadable.add_error(done.item.picture.name, done.unreadable)
                    continue
                value = record(done, self._stages[-1].name, self._out)
                file.write(json.dumps(value, ensure_ascii=False) + "\n")
                written += 1
                unanswered += done.unanswered
                good.update(done.texts.keys())
        if unanswered:
            raise TellapartError(f"{unanswered:,} of {written:,} items have no answer ({job.failure})")
        return Done.of(dataset, written, **{f"good_{name}": count for name, count in good.items()})


def merge_boosted(job: Job, out: str, *, without_failed: bool = False) -> int:
    """Joins the lines of all shards as one job would have written them. Returns how many there are.

    Raises `UsageError` for a file that boosting did not write.
    """
    check_out(Path(out))
    numbers = wanted_shards(job, without_failed)
    try:
        stages = [{"name": str(stage["name"]), **stage} for stage in job.value["models"]["stages"]]
    except (KeyError, TypeError):
        raise UsageError(f"{job.path}/{JOB}: damaged; {ANEW}") from None
    good: Counter[str] = Counter()
    for number in numbers:
        more = job.summary(number)["more"]
        good.update({name: more.get(f"good_{name}", 0) for name in (stage["name"] for stage in stages)})
    ids = hashlib.blake2b(digest_size=16)
    count = 0
    made: dict[str, Any] = {"data": " ".join(job.value["typed"]), "items": 0, "ids": "", "stages": stages}
    with Output.open(Path(out), made) as output:
        for _, path in results(job, numbers, "joining shards"):
            for value in read_records(path):
                output.write(value)
                ids.update(value["id"].encode("utf-8", "backslashreplace") + b"\0")
                count += 1
        made |= {"items": count, "ids": ids.hexdigest(), "shard": [1, 1]}
        made |= {"per_reference": True} if job.value["models"].get("per_reference") else {}
        output.fall_back(good, stages[-1]["name"])
    return count


def ledgers_of(path: str) -> str:
    """Returns the folder of the ledgers of a job."""
    return os.path.join(path, "ledgers")  # noqa: PTH118 (a text, like the paths of a job)


# By name: what is done with a shard, and what joins the results of all shards.
WORKS: dict[str, tuple[Callable[..., Work], Callable[..., int]]] = {
    "caption": (Captions.open, merge_lines),
    "encode": (Features.open, write_features),
    "boost": (Boosts.open, merge_boosted),
}


def _work(name: str) -> tuple[Callable[..., Work], Callable[..., int]]:
    if name not in WORKS:
        raise UsageError(f"a job of '{name}' is not known here; is it of a newer tellapart?")
    return WORKS[name]


def make_work(name: str, settings: Mapping[str, Any]) -> Work:
    """Returns the work of a name, which is `WORKS`' alone: a job's folder cannot name other code."""
    return _work(name)[0](**settings)


def merge_job(job: Job, out: str, *, without_failed: bool = False) -> int:
    """Joins the results of a job, in the way of its work. Returns how many items there are.

    Raises `TellapartError` where they are not as many as the workers wrote.
    """
    joined = _work(job.work)[1](job, out, without_failed=without_failed)
    if joined != (written := sum(job.summary(number)["written"] for number in job.done() if number < job.shards)):
        raise TellapartError(
            f"{out}: {joined:,} items, where the summaries of {job.path} count {written:,}; do it anew"
        )
    return joined


Reply = dict[str, Any]


class Worker:
    """Does the shards of one job. ``settings``: as the driver has them, not as they stand in the job's folder.

    ``here``: the driver's folder, from which relative paths are meant.
    """

    def __init__(self, path: str, work: str, settings: Mapping[str, Any], here: str) -> None:
        self._path, self._name, self._settings, self._here = path, work, settings, here
        self._job: Job | None = None
        self._work: Work | None = None

    def start(self) -> Reply:
        """Loads the models."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        tempfile.tempdir = str(scratch_folder())
        try:
            if Path(self._here).is_dir():
                os.chdir(self._here)
            self._job = Job.open(self._path)
            self._work = make_work(self._name, self._settings)
            models = self._work.models()
        except Exception as error:
            return _reply_of(error)
        who = {"host": socket.gethostname(), "pid": os.getpid(), "node": _node()}
        return {"models": models, "version": __version__, **who}

    def run(self, shard: Mapping[str, Any]) -> Reply:
        """Does a shard: its result and its summary are there when this returns, unless it says why not."""
        assert self._job is not None and self._work is not None
        started = time.monotonic()
        found = Shard.of(dict(shard))
        try:
            with open_shard(found, self._job.folder) as dataset, TemporaryDirectory(prefix="tellapart-part-") as folder:
                out = Path(folder) / f"part{self._job.suffix}"
                pictures = pictures_of(found, dataset)
                done = self._work.run(dataset, out)
                if (beside := rows_file(out)).is_file():
                    pictures["list"] = sha256(beside)
                    self._job.folder.put(beside, self._job.pictures_name(found.number))
                summary = summary_of(done, time.monotonic() - started, out, pictures)
                self._job.folder.write(self._job.summary_name(found.number), (json.dumps(summary) + "\n").encode())
                self._job.folder.put(out, self._job.part(found.number))
        except Exception as error:
            return _reply_of(error)
        return {"summary": summary}

    def sample(self, shard: Mapping[str, Any], most: int) -> Reply:
        """Does the first ``most`` items of a shard, to see how long they take; nothing is kept."""
        assert self._job is not None and self._work is not None
        try:
            with (
                open_shard(Shard.of(dict(shard)), self._job.folder) as dataset,
                TemporaryDirectory(prefix="tellapart-part-") as folder,
            ):
                whole = len(dataset)
                some = Dataset(dataset.spec, list(dataset[:most]), dataset.missing)
                started = time.monotonic()
                out = Path(folder) / f"part{self._job.suffix}"
                done = self._work.run(some, out)
                summary = summary_of(done, time.monotonic() - started, out, {})
        except Exception as error:
            return _reply_of(error)
        return {"summary": summary, "whole": whole}


def _node() -> str:
    """Returns the id of this node of the cluster."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def summary_of(done: Done, seconds: float, out: Path, pictures: Mapping[str, str]) -> dict[str, Any]:
    """Returns what is written down of a shard's result ``out``. ``pictures``: see
    `tellapart.jobs.manifest.pictures_of`.
    """
    return {
        "items": done.items, "written": done.written, "left_out": done.left_out[:100],
        "left_out_count": done.left_out_count, "more": done.more, "seconds": round(seconds, 3),
        "bytes": out.stat().st_size, "sha256": sha256(out), "pictures": dict(pictures),
        "host": socket.gethostname(), "pid": os.getpid(),
    }  # fmt: skip


def _reply_of(error: Exception) -> Reply:
    """Returns an error as a value. ``final``: trying again would end in the same way."""
    memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if memory:
        _free_memory()
    line = str(error) if isinstance(error, TellapartError) else f"{type(error).__name__}: {error}"
    return {
        "error": " ".join(line.split()),
        "final": isinstance(error, UsageError),
        "status": getattr(error, "exit_code", 1),
        "traceback": "" if isinstance(error, TellapartError) else traceback.format_exc(),
    }


def _free_memory() -> None:
    """Gives back what the failed shard held on a GPU."""
    gc.collect()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
