"""The results of a job's shards joined, without workers: the shards' files are written here."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli
from test_manifest import photo

from tellapart.captions.formats import json_line
from tellapart.captions.written import Written
from tellapart.cli.workers import job_counts, refuse_mostly_unreadable
from tellapart.data import open_data
from tellapart.data.pictures import content_key
from tellapart.errors import TellapartError, UsageError
from tellapart.features.encoded_rows import EncodedRows
from tellapart.jobs import worker
from tellapart.jobs.file_systems import url_errors
from tellapart.jobs.job import STATUS, Job, recorded_results
from tellapart.jobs.pool import Event
from tellapart.jobs.prepare import JobRequest, prepare
from tellapart.jobs.replaced_pictures import pictures_of
from tellapart.jobs.run import Attempts
from tellapart.jobs.shard import Shard, open_shard
from tellapart.jobs.status import Pulse
from tellapart.jobs.storage import DiskFolder
from tellapart.jobs.worker import summary_of
from tellapart.jobs.works import joined_features
from tellapart.jobs.works.base import Done
from tellapart.jobs.works.table import merge_job
from tellapart.utils.sqlite import transaction


def encoded(folder: Path, counts: Sequence[int], rows_ND: np.ndarray) -> Job:
    """A job of as many pictures as ``rows_ND`` has rows, with so many in each shard's result."""
    photos = folder / "photos"
    photos.mkdir(parents=True)
    for number in range(len(counts)):
        (photos / f"{number}.jpg").write_bytes(photo(number, 30, 20))
    job = prepare(JobRequest("encode", {}, {}), [str(photos)], "features", str(folder / "features.job"), ".npz",
                  shard_items=1, overwrite=False)  # fmt: skip
    first = 0
    for number, count in enumerate(counts):
        ids = [f"{row}.jpg" for row in range(first, first + count)]
        EncodedRows("m", "fp32", ids, ids, rows_ND[first : first + count], []).save(folder / "part.npz")
        summary = summary_of(Done(4, count, [("x.jpg", "no picture")], 4 - count), 1.0, folder / "part.npz", {})
        job.folder.write(job.summary_name(number), json.dumps(summary).encode())
        job.folder.put(folder / "part.npz", job.part(number))
        first += count
    return job


def test_features_are_joined_and_those_of_a_larger_job_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_features, "ROWS_PER_FILE", 11)
    rows_ND = np.random.default_rng(0).standard_normal((24, 5)).astype(np.float16)
    out = tmp_path / "features"
    assert joined_features.write_features(encoded(tmp_path / "a", [4, 0, 4, 4, 4, 4, 4], rows_ND), str(out)) == 24
    assert sorted(path.name for path in out.glob("*.npy")) == ["000000.npy", "000001.npy"]
    assert np.array_equal(np.concatenate([np.load(out / f"00000{n}.npy") for n in range(2)]), rows_ND)
    ids = "".join((out / f"00000{n}.txt").read_text() for n in range(2))
    assert ids == "".join(f"{n}.jpg\n" for n in range(24))
    (out / "mine.npy").write_bytes(b"")
    assert joined_features.write_features(encoded(tmp_path / "b", [4, 3], rows_ND), str(out)) == 7
    assert sorted(path.name for path in out.iterdir()) == ["000000.npy", "000000.txt", "mine.npy"]
    assert np.array_equal(np.load(out / "000000.npy"), rows_ND[:7])
    with pytest.raises(UsageError, match="none of the pictures could be read"):
        joined_features.write_features(encoded(tmp_path / "c", [0], rows_ND), str(out))


def captioned(folder: Path, names: Sequence[str], captions: Sequence[Sequence[str]], shard_items: int = 2) -> Job:
    """A finished job over pictures of these names, which lines of JSON list: as the workers leave it."""
    photos = folder / "photos"
    photos.mkdir(parents=True)
    for number, name in enumerate(names):
        (photos / name).write_bytes(photo(number, 30, 20))
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps({"id": name, "image": f"photos/{name}"}) + "\n" for name in names))
    job = prepare(JobRequest("caption", {}, {}), [str(data)], "out.jsonl", str(folder / "out.jsonl.job"), ".jsonl",
                  shard_items=shard_items, overwrite=False)  # fmt: skip
    for shard in job.manifest():
        with open_shard(shard, job.folder) as dataset:
            items, first = list(dataset), shard.number * shard_items
            written = [json_line(Written(item, captions[first + n][0], samples=tuple(captions[first + n])))
                       for n, item in enumerate(items)]  # fmt: skip
            (folder / "part").write_text("".join(written))
            summary = summary_of(Done(len(items), len(items)), 1.0, folder / "part", pictures_of(shard, dataset))
        job.folder.write(job.summary_name(shard.number), json.dumps(summary).encode())
        job.folder.put(folder / "part", job.part(shard.number))
    return job


def damage(job: Job, number: int, kind: str) -> None:
    """What happens to files: a part or its summary is not as it was written."""
    part = Path(job.path) / job.part(number)
    content = part.read_bytes()
    if kind == "a line removed":
        part.write_bytes(content[content.index(b"\n") + 1 :])
    elif kind == "an edited caption":
        part.write_bytes(content.replace(b"a dog", b"a cat"))
    elif kind == "an intruder":
        part.write_bytes(content + b'{"id": "intruder.jpg", "caption": "a dog"}\n')
    elif kind == "half a line":
        part.write_bytes(content[:-9])
    elif kind == "summary gone":
        (Path(job.path) / job.summary_name(number)).unlink()
    elif kind == "summary damaged":
        (Path(job.path) / job.summary_name(number)).write_text("[1")


@pytest.mark.parametrize(("ahead", "state"), [(-10, "running"), (10, "running"), (-4000, "stopped"), (4000, "stopped")])
def test_a_driver_of_another_time_has_stopped(cli: Cli, ahead: float, state: str, tmp_path: Path) -> None:
    """Where the clock was set back, too: such a job ran for as long as the clock had gone back."""
    job = captioned(tmp_path, ["0.jpg", "1.jpg"], [("a dog",)] * 2)
    (Path(job.path) / job.summary_name(0)).unlink()
    pulse = Pulse(job)
    pulse.write(always=True)
    value = json.loads((Path(job.path) / STATUS).read_text())
    (Path(job.path) / STATUS).write_text(json.dumps(value | {"at": time.time() + ahead}))
    shown = cli("job", "status", job.path).out
    assert f", {state}\n" in shown
    assert (", last reported 1:06:" in shown) == (ahead == -4000)
    assert (", reported 1:06:" in shown and "ahead of this machine's clock" in shown) == (ahead == 4000)


DAMAGES = ("a line removed", "an edited caption", "an intruder", "half a line", "summary gone", "summary damaged")


@pytest.mark.long
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_part_is_seen_by_merge_status_and_the_next_run(cli: Cli, kind: str, tmp_path: Path) -> None:
    job = captioned(tmp_path, [f"{n}.jpg" for n in range(6)], [("a dog",)] * 6)
    assert cli("job", "merge", job.path, "-o", tmp_path / "whole.jsonl").status == 0
    assert len((tmp_path / "whole.jsonl").read_text().splitlines()) == 6
    damage(job, 1, kind)
    merged = cli("job", "merge", job.path, "-o", tmp_path / "out.jsonl")
    assert merged.status == 1 and "000001." in merged.line and "run the job's command again" in merged.line
    assert not (tmp_path / "out.jsonl").exists()
    status = json.loads(cli("job", "status", job.path, "--json").out)
    assert (status["done"], status["shards"], status["state"]) == (2, 3, "waiting") and len(status["unsound"]) == 1
    assert "damaged: " in cli("job", "status", job.path).out
    assert set(job.unsound(pictures=True)) == {1}


def test_a_damaged_npz_is_one_line(cli: Cli, tmp_path: Path) -> None:
    """Also where its checksum was made of the damage."""
    job = encoded(tmp_path, [2, 2], np.zeros((4, 2), np.float32))
    part = Path(job.path) / job.part(1)
    whole = part.read_bytes()
    for place in range(0, len(whole), 7):
        part.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with contextlib.suppress(UsageError):
            EncodedRows.load(part)
    merged = cli("job", "merge", job.path, "-o", tmp_path / "features")
    assert merged.status == 1 and "damaged" in merged.line


BAD = (
    b"",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"{",
    b'{"number": []}',
    b'{"shard": "x", "state": 3, "shards": -1}',
    b"9" * 5000,
    b"[" * 100_000,
)


@pytest.mark.long
@pytest.mark.parametrize("name", ["job.json", "manifest.jsonl", "status.json", "failed/000001.json", "parts/summary"])
def test_damaged_files_of_a_job_are_one_line(name: str, cli: Cli, tmp_path: Path) -> None:
    job = captioned(tmp_path, [f"{n}.jpg" for n in range(6)], [("a dog",)] * 6)
    Pulse(job).write(always=True)
    job.set_aside(Shard(1, "x"), "a reason", 1)
    file = Path(job.path) / (job.summary_name(1) if name == "parts/summary" else name)
    for content in BAD:
        file.write_bytes(content)
        for command in (("status",), ("status", "--json"), ("merge", "-o", tmp_path / "out.tar")):
            done = cli("job", command[0], job.path, *command[1:])
            assert done.status in (0, 1, 2) and "Traceback" not in done.err
            assert done.status == 0 or len(done.err.splitlines()) == 1


def test_replaced_pictures_are_noticed_and_touched_ones_are_not(tmp_path: Path) -> None:
    job = captioned(tmp_path, [f"{n}.jpg" for n in range(6)], [("a dog",)] * 6)
    (tmp_path / "photos" / "0.jpg").touch()
    assert not job.unsound(pictures=True)
    old = (tmp_path / "photos" / "5.jpg").stat()
    (tmp_path / "photos" / "5.jpg").write_bytes(photo(99, 30, 20))
    os.utime(tmp_path / "photos" / "5.jpg", ns=(old.st_atime_ns, old.st_mtime_ns + 1))
    assert set(job.unsound(pictures=True)) == {2} and not job.unsound()


NAMES = (
    "photo.jpg?w=300",
    "photo.jpg?w=600",
    "a.jpg.1",
    "c.txt",
    "d.json",
    "e",
    "Straße 1.JPG",
    "x." + "y" * 150,
    ".f",
)


def test_a_tar_keeps_every_picture(cli: Cli, tmp_path: Path) -> None:
    captions = [(f"caption {n}",) if n % 2 else ("of two\nlines", "another") for n in range(len(NAMES))]
    job = captioned(tmp_path, NAMES, captions)
    made = cli("job", "merge", job.path, "-o", tmp_path / "merged.tar")
    assert made.status == 0, made.err
    items = open_data(str(tmp_path / "merged.tar"))
    assert [item.picture.key() for item in items] == [content_key(photo(n, 30, 20)) for n in range(len(NAMES))]
    assert [item.references for item in items] == [tuple(" ".join(c.split()) for c in each) for each in captions]
    with tarfile.open(tmp_path / "merged.tar") as members:
        found = [json.load(members.extractfile(m)) for m in members if m.name.endswith(".json")]  # type: ignore[arg-type]
        assert [each["id"] for each in found] == list(NAMES)
        assert [tuple(each["captions"]) for each in found] == captions
        keys = [member.name.partition(".")[0] for member in members if member.name.endswith(".json")]
    assert keys[:3] == ["000000000-photo", "000000001-photo", "000000002-a-jpg"] and len(set(keys)) == len(NAMES)


def test_a_job_of_hardly_any_picture_ends_with_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows_ND = np.zeros((8, 2), np.float32)
    refuse_mostly_unreadable(job_counts(encoded(tmp_path / "half", [4, 0], rows_ND)))
    with pytest.raises(TellapartError, match="5 of 8 pictures could not be read, which is more than half"):
        refuse_mostly_unreadable(job_counts(encoded(tmp_path / "less", [3, 0], rows_ND)))
    with pytest.raises(TellapartError, match="none of the pictures could be read; if they are in another"):
        job_counts(encoded(tmp_path / "none", [0, 0], rows_ND))
    assert "x.jpg (no picture)" in capsys.readouterr().err


def test_shards_done_since_they_were_set_aside_and_many(tmp_path: Path) -> None:
    job = encoded(tmp_path, [1, 1], np.zeros((2, 2), np.float32))
    for shard in (Shard(1, "done since", ""), Shard(7, "not done", "")):
        job.set_aside(shard, "a reason", 3)
    assert [one["shard"] for one in job.failed()] == [7]
    job.folder.write(job.part(1_234_567), b"")
    assert job.done() == {0, 1, 1_234_567}


def test_what_is_tried_again() -> None:
    """A failure twice, a death of the machine nine times; what no second attempt mends, not at all."""
    for event, tries in (
        (Event(Shard(0, "a"), None, "a reason"), 2),
        (Event(Shard(0, "a"), None, "the worker terminated with its node", blameless=True), 9),
        (Event(Shard(0, "a"), None, "no such file", final=True), 0),
    ):
        attempts, again = Attempts(), 0
        while attempts.again(event):
            again += 1
        assert again == tries and attempts.total(event.shard) == tries + 1


def test_results_go_where_the_job_lies(cli: Cli, tmp_path: Path) -> None:
    """Not where its file says."""
    job = encoded(tmp_path, [2, 2], np.zeros((4, 2), np.float32))
    (tmp_path / "features.job" / "job.json").write_text(json.dumps(job.value | {"out": str(tmp_path / "elsewhere")}))
    assert cli("job", "merge", f"{job.path}/").status == 0
    assert len(np.load(tmp_path / "features" / "000000.npy")) == 4 and not (tmp_path / "elsewhere").exists()
    (tmp_path / "features.job").rename(tmp_path / "moved")
    assert "does not end in .job; specify the output file: -o" in cli("job", "merge", tmp_path / "moved").line


def test_results_are_known_to_their_job_after_the_cache_was_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, out = encoded(tmp_path, [2], np.ones((2, 2), np.float32)), tmp_path / "features"
    merge_job(job, str(out))
    monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path / "another cache"))
    merge_job(job, str(out))
    with recorded_results(job.path):
        joined_features.check_features(str(out))
    np.save(out / "000000.npy", np.zeros((3, 2)))  # a person's
    monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path / "a third cache"))
    with pytest.raises(UsageError, match=r"000000\.npy was not written by tellapart, but would count as"):
        merge_job(job, str(out))


@pytest.mark.parametrize(
    "command",
    [
        ("caption", "openai:m@http://127.0.0.1:9/v1"),
        ("boost", "--llm", "scripted", "--mllm", "scripted"),
        ("boost", "--llm", "scripted", "--mllm", "scripted", "--workers", 1),
    ],
)
def test_an_address_is_no_folder(
    cli: Cli, command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "to a URL" in cli(*command, "scenes:plain?n=2", "-o", "s3://bucket/x.jsonl").line
    assert not list(tmp_path.iterdir())


def test_what_a_store_says_is_one_line() -> None:
    class NoCredentialsError(Exception):
        """As botocore's, which is no OSError."""

    with pytest.raises(TellapartError, match="s3://b: NoCredentialsError: Unable to locate"), url_errors("s3://b"):
        raise NoCredentialsError("Unable to locate credentials")


def test_a_transaction_that_the_database_has_ended_keeps_its_error() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    with pytest.raises(ValueError, match="disk is full"), transaction(db):
        db.execute("ROLLBACK")  # as SQLite does
        raise ValueError("disk is full")
    with pytest.raises(ValueError, match="another"), transaction(db):
        db.execute("CREATE TABLE t (a)")
        raise ValueError("another")
    assert not db.in_transaction and not db.execute("SELECT * FROM sqlite_master").fetchall()
    db.close()


def test_a_result_crosses_two_mounts_of_one_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which look like one disk, and refuse to rename."""
    replace = Path.replace

    def refused(self: Path, target: Path) -> Path:
        if self.parent != target.parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refused)
    (tmp_path / "part").write_text("whole")
    DiskFolder(tmp_path / "job").put(tmp_path / "part", "parts/0")
    assert [path.name for path in (tmp_path / "job" / "parts").iterdir()] == ["0"]
    assert (tmp_path / "job" / "parts" / "0").read_text() == "whole"


def test_features_at_a_dangling_link_are_refused_before_any_work(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    told = cli("data", "encode", "scenes", "scenes:plain?n=2", "-o", tmp_path / "link").line
    assert "which does not exist; create it, or choose another output" in told
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_the_errors_of_workers_are_whole() -> None:
    told = worker._reply_of(RuntimeError("long " * 400 + "and its cause\nin the last line"))
    assert told["error"].endswith("and its cause in the last line") and "\n" not in told["error"]


def test_what_is_missing_counts_among_the_pictures_of_a_shard(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(photo(number, 30, 20))
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    (tmp_path / "empty.jpg").touch()
    names = ("0.jpg", "1.jpg", "2.jpg", "bad.jpg", "empty.jpg", "gone.jpg")
    lines = [json.dumps({"image": name, "caption": "a dog"}) + "\n" for name in names]
    (tmp_path / "list.jsonl").write_text("".join(lines))
    shard = open_data(f"jsonl:{tmp_path / 'list.jsonl'}")
    written = sum(shard.load_image(item) is not None for item in shard)
    done = Done.of(shard, written)
    assert (done.items, done.written, done.left_out_count, len(done.left_out)) == (6, 3, 3, 3)


def test_shards_of_a_data_set_that_is_opened_whole_do_not_count_its_missing_pictures(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(photo(number, 30, 20))
    names = ("0.jpg", "1.jpg", "gone.jpg", "2.jpg")
    lines = [json.dumps({"image": name, "caption": "a dog"}) + "\n" for name in names]
    (tmp_path / "list.jsonl").write_text("".join(lines))
    counts = []
    for span in ((0, 2), (2, 3)):
        shard = Shard(1, f"jsonl:{tmp_path / 'list.jsonl'}", "", items=span)
        with open_shard(shard, DiskFolder(tmp_path / "job")) as dataset:
            done = Done.of(dataset, len(dataset))
        counts.append((done.items, done.left_out_count))
    assert counts == [(2, 0), (1, 0)]
