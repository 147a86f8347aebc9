"""``caption --workers N``: the same bytes as the plain command, status and merge from files, what is refused."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from threading import Thread

import pytest
from command_line import Cli
from test_manifest import photo

from tellapart.captions.provenance import Provenance
from tellapart.data import open_data
from tellapart.utils.locks import locked

COUNT = 150


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(COUNT):
        (folder / f"{number}.jpg").write_bytes(photo(number, 48, 32))
    (folder / "77.jpg").write_bytes(b"\xff\xd8 not a JPEG")
    return folder


@pytest.mark.long
def test_two_workers_write_the_bytes_of_one_process(
    cli: Cli, photos: Path, tiny_captioner: Path, tmp_path: Path
) -> None:
    """And the state and the results of the job are read from its files; the plain command knows its file again."""
    plain, shared = tmp_path / "plain.jsonl", tmp_path / "shared.jsonl"
    command = ("caption", tiny_captioner, photos, "--beams", 1, "--max-tokens", 8)
    assert cli(*command, "-o", plain).status == 0
    done = cli(*command, "-o", shared, "--workers", 2, "--shard-items", 32)
    assert done.status == 0, done.err
    assert shared.read_bytes() == plain.read_bytes()
    assert "149 captions written" in done.err and "77.jpg (" in done.err
    known = cli(*command, "-o", shared)
    assert known.status == 0 and "0 captions written" in known.err

    status = json.loads(cli("job", "status", f"{shared}.job", "--json").out)
    assert (status["state"], status["done"], status["shards"]) == ("finished", 5, 5)

    shared.unlink()
    before = sorted((file.name, file.stat().st_mtime_ns) for file in Path(f"{shared}.job").glob("parts-*/*"))
    again = cli(*command, "-o", shared, "--workers", 1)
    assert again.status == 0 and "5 of 5 shards already done" in again.err
    assert before == sorted((file.name, file.stat().st_mtime_ns) for file in Path(f"{shared}.job").glob("parts-*/*"))
    assert shared.read_bytes() == plain.read_bytes()

    for out in ("merged.csv", "merged.parquet", "merged.tar"):
        assert cli("job", "merge", f"{shared}.job", "-o", tmp_path / out).status == 0
    written = {record["id"]: record["caption"] for record in map(json.loads, plain.read_text().splitlines())}
    tar = open_data(str(tmp_path / "merged.tar"))
    assert [item.references for item in tar] == [(caption,) for caption in written.values()]
    assert [item.picture.key() for item in tar] == [open_data(str(photos / id_))[0].picture.key() for id_ in written]
    with tarfile.open(tmp_path / "merged.tar") as members:
        assert {member.mtime for member in members} == {0}
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(tmp_path / "merged.parquet").to_pylist()
    assert rows == [{"id": id_, "captions": [caption]} for id_, caption in written.items()]
    assert (tmp_path / "merged.csv").read_text().splitlines()[:2] == ["id,caption", f"0.jpg,{written['0.jpg']}"]

    other = cli(*command[:-1], 7, "-o", shared, "--workers", 1)
    assert other.status == 2 and "is a job with a different decoding; pass --overwrite" in other.err


def test_without_ray_a_line_says_what_to_install(
    cli: Cli, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = cli("caption", "scenes", photos, "-o", tmp_path / "a.jsonl", "--workers", 2)
    assert (done.status, done.err) == (
        2, "tellapart: --workers requires an extra that is not installed; run: pip install 'tellapart[ray]'\n",
    )  # fmt: skip
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--best-of", 3, "--scorer", "scenes", "--workers", 2), "--best-of compares each picture with all others"),
        (("--estimate",), "--estimate requires multiple workers; add --workers 2 or"),
        (("--price", 2, "--workers", 2), "--price requires --estimate; add it, or remove --price"),
        (("--workers", 2, "--estimate", "--overwrite"), "--estimate does not change existing results, so it cannot be"),
    ],
)
def test_what_has_no_effect_is_refused(cli: Cli, options: tuple[object, ...], line: str, photos: Path) -> None:
    done = cli("caption", "scenes", photos, "-o", "a.jsonl", *options)
    assert done.status == 2 and line in done.err


def test_a_result_of_another_command_is_kept(cli: Cli, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("mine")
    done = cli("caption", "scenes", photos, "-o", tmp_path / "a.jsonl", "--workers", 1)
    assert (
        done.status == 2
        and "1 captions were written or edited by hand; choose another file, or pass --replace-edited" in done.err
    )
    assert (tmp_path / "a.jsonl").read_text() == "mine" and not (tmp_path / "a.jsonl.job").exists()


def test_a_list_of_file_names_is_refused(cli: Cli, photos: Path) -> None:
    """Issue: its lines had an id and a caption, which no program reads as the names of pictures."""
    done = cli("caption", "scenes", photos, "-o", photos / "metadata.jsonl", "--workers", 1)
    assert done.status == 2 and "metadata.jsonl cannot be written with --workers" in done.line
    assert not list(photos.glob("metadata*"))


def test_the_job_of_a_running_command_is_left_alone(cli: Cli, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a.jsonl.job"
    with locked(folder, wait=False):
        (folder / "job.json").write_text("of the one that runs")
        done = cli("caption", "scenes", photos, "-o", tmp_path / "a.jsonl", "--workers", 1, "--overwrite")
    assert done.status == 2 and "is in use by process" in done.err
    assert (folder / "job.json").read_text() == "of the one that runs"


def test_no_cluster_is_one_line(cli: Cli, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other commands have started for themselves."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    done = cli("caption", "scenes", photos, "-o", tmp_path / "a.jsonl", "--ray")
    assert done.status == 2 and "no Ray cluster at 'auto'" in done.err and "ray start --head" in done.err
    assert cli("job", "status", tmp_path).status == 2


@pytest.mark.long
def test_a_running_job_is_seen_from_another_terminal(
    cli: Cli, photos: Path, tiny_captioner: Path, tmp_path: Path
) -> None:
    """And its own terminal has one line of progress for all workers. The data: JSON lines, cut into shards."""
    data, out = tmp_path / "data.jsonl", tmp_path / "a.jsonl"
    lines = [{"id": f"é{n}", "image": str(photos / f"{n}.jpg")} for n in range(50)]
    data.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    options = ("--beams", 1, "--max-tokens", 3)
    slow = (f"poisoned:make?model={tiny_captioner}&delay=0.15", data, "-o", out, "--workers", 2, "--shard-items", 5)
    here, there = os.openpty()
    shown: list[bytes] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "tellapart", "caption", *map(str, (*slow, *options))],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=there,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "TERM": "xterm", "COLUMNS": "160"},
    )  # fmt: skip
    os.close(there)
    reader = Thread(target=read_all, args=(here, shown))
    reader.start()
    seen = []
    while process.poll() is None:
        if (tmp_path / "a.jsonl.job" / "status.json").is_file():
            found = cli("job", "status", f"{out}.job", "--json")
            seen.append(json.loads(found.out))
        time.sleep(0.5)
    reader.join()
    screen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(shown).decode())
    assert process.returncode == 0, screen
    running = [state for state in seen if state["workers"] == 2 and state["items_per_second"]]
    assert running and {state["state"] for state in running} == {"running"}, seen
    assert any(0 < state["done"] < state["shards"] == 10 for state in running)
    bars = [line for line in re.split(r"[\r\n]+", screen) if "/10" in line]
    assert bars and all(line.startswith("captioning, shards") and line.count("/10") == 1 for line in bars), screen
    assert re.search(r"2 workers, [0-9.]+ items/s", bars[-1])
    plain = tmp_path / "plain.jsonl"
    assert cli("caption", tiny_captioner, data, "-o", plain, *options).status == 0
    assert out.read_bytes() == plain.read_bytes()


def read_all(terminal: int, shown: list[bytes]) -> None:
    """What is written to a terminal, until no process has it."""
    with contextlib.suppress(OSError), open(terminal, "rb", buffering=0) as file:
        while data := file.read(1 << 16):
            shown.append(data)


@pytest.mark.long
def test_an_estimate_of_a_sample(cli: Cli, photos: Path, tiny_captioner: Path, tmp_path: Path) -> None:
    """It does nothing that is kept, and the same command without it does the job."""
    command = ("caption", tiny_captioner, photos, "--beams", 1, "-o", tmp_path / "a.jsonl", "--workers", 1)
    done = cli(*command, "--estimate", "--price", 3.6, "--shard-items", 16)
    assert done.status == 0, done.err
    shards, sample, hours, disk, cost = done.out.splitlines()
    assert shards == "10 shards, 150 items" and sample.startswith("sample of 12")
    spent = float(hours.partition("(")[2].split()[0])
    assert float(cost.split()[1]) == pytest.approx(3.6 * spent, abs=0.02) and "MB" in disk
    assert json.loads(cli("job", "status", tmp_path / "a.jsonl.job", "--json").out)["state"] == "waiting"


@pytest.mark.long
def test_a_damaged_shard_and_replaced_pictures_are_done_again(
    cli: Cli, tiny_captioner: Path, tmp_path: Path, cluster: str
) -> None:
    """And no other shard; the result is that of the plain command."""
    photos, out = tmp_path / "photos", tmp_path / "captions.jsonl"
    photos.mkdir()
    for number in range(16):
        (photos / f"{number:02}.jpg").write_bytes(photo(number, 48, 32))
    plain = ("caption", tiny_captioner, photos, "--beams", 1, "--max-tokens", 8)
    command = (*plain, "--workers", 1, cluster, "--shard-items", 4)
    assert cli(*command, "-o", out).status == 0

    parts = sorted(Path(f"{out}.job").glob("parts-*/??????.jsonl"))
    before = [part.stat().st_mtime_ns for part in parts]
    parts[0].write_text(parts[0].read_text().partition("\n")[2])
    (photos / "09.jpg").write_bytes(photo(99, 48, 32))
    again = cli(*command, "-o", out)
    assert again.status == 0 and "2 of 4 shards already done" in again.err
    assert "repeating shard 0" in again.err and "some of its pictures were replaced; repeating shard 2" in again.err
    assert [part.stat().st_mtime_ns != time for part, time in zip(parts, before, strict=True)] == [1, 0, 1, 0]

    assert cli(*plain, "-o", tmp_path / "plain.jsonl").status == 0
    assert out.read_bytes() == (tmp_path / "plain.jsonl").read_bytes()


@pytest.mark.long
def test_the_plain_command_notices_pictures_replaced_since_a_job(
    cli: Cli, tiny_captioner: Path, tmp_path: Path, cluster: str
) -> None:
    """The list beside the captions is of the pictures that the workers saw, also where a job did some of them again."""
    photos, out = tmp_path / "photos", tmp_path / "captions.jsonl"
    photos.mkdir()
    for number in range(8):
        (photos / f"{number}.jpg").write_bytes(photo(number, 48, 32))
    plain = ("caption", tiny_captioner, photos, "--beams", 1, "--max-tokens", 8, "-o", out)
    shared = (*plain, "--workers", 1, cluster, "--shard-items", 4)
    assert cli(*shared).status == 0
    assert "0 captions written, 8 already done" in cli(*plain).err

    (photos / "2.jpg").write_bytes(photo(99, 48, 32))
    found = cli(*plain)
    assert "1 pictures have since been replaced and are captioned again" in found.err
    assert "1 captions written, 7 already done" in found.err
    assert "1 of 2 shards already done" in cli(*shared).err
    (photos / "2.jpg").write_bytes(photo(2, 48, 32))
    assert "1 pictures have since been replaced and are captioned again" in cli(*plain).err

    listed = next(Path(f"{out}.job").glob("parts-*/000001.pictures"))
    listed.write_text("")
    assert "repeating shard 1" in cli(*shared).err
    assert len(Provenance.open(Path(out)).rows) == 8
    assert cli("job", "merge", f"{out}.job").status == 0
    assert "0 captions written, 8 already done" in cli(*plain).err
