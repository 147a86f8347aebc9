"""The driver knows shards, not items: ten million items take no more of its memory than a hundred thousand.

But a folder is listed in its memory once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import hashlib, json, resource, sys
from pathlib import Path
from tellapart.jobs.job import Job
from tellapart.jobs.prepare import JobRequest, prepare
from tellapart.jobs.pool import Todo
from tellapart.jobs.status import status_of

data, out = sys.argv[1:]
def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def begun():
    asked = JobRequest("caption", {}, {})
    return prepare(asked, [data], out, out + ".job", ".jsonl", shard_items=1024, overwrite=False)
job = begun()
parts = Path(job.path) / job.parts
parts.mkdir()
summary = json.dumps({"items": 0, "written": 0, "left_out": [], "left_out_count": 0, "more": {}, "bytes": 0,
                      "sha256": hashlib.sha256().hexdigest(), "pictures": {}})
for number in range(0, job.shards, 2):
    (Path(job.path) / job.part(number)).touch()
    (Path(job.path) / job.summary_name(number)).write_text(summary)
job = begun()  # as after an interruption
todo = Todo(job.manifest(), job.done())
taken = 0
while todo.take() is not None:
    taken += 1
state = status_of(job)
print(json.dumps([job.items, job.shards, taken, state["done"], megabytes()]))
"""


def peak(items: int, folder: Path) -> tuple[int, int, int, int, float]:
    """Items, shards, shards to do, shards done, and the peak memory of the driver in MB."""
    lines = b'{"image": "photos/0001234567.jpg"}\n' * 100_000
    folder.mkdir()
    with (folder / "data.jsonl").open("wb") as file:
        for _ in range(items // 100_000):
            file.write(lines)
    found = driver(folder / "data.jsonl")
    (folder / "data.jsonl").unlink()
    return found


def driver(data: Path) -> tuple[int, int, int, int, float]:
    """See `peak`, of a driver in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(data), str(data.with_name("out.jsonl"))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    items, shards, taken, finished, megabytes = json.loads(done.stdout)
    return items, shards, taken, finished, megabytes


def peak_of_folder(items: int, folder: Path) -> float:
    """The peak memory of the driver in MB for a folder of so many files, in folders of a thousand."""
    for thousand in range(items // 1000):
        below = folder / "photos" / f"{thousand:05d}"
        below.mkdir(parents=True)
        (below / "0000000.jpg").write_bytes(b"x")
        for number in range(1, 1000):
            os.link(below / "0000000.jpg", below / f"{1000 * thousand + number:07d}.jpg")
    found = driver(folder / "photos")
    assert found[0] == items
    shutil.rmtree(folder)
    return found[4]


@pytest.mark.long
def test_memory_does_not_grow_with_the_items(tmp_path: Path) -> None:
    small, large = peak(10**5, tmp_path / "small"), peak(10**7, tmp_path / "large")
    assert small[:4] == (10**5, 98, 49, 49) and large[:4] == (10**7, 9766, 4883, 4883)
    print(f"driver: {small[4]:.0f} MB at 10^5 items, {large[4]:.0f} MB at 10^7")
    assert large[4] - small[4] < 25, (small, large)


@pytest.mark.long
@pytest.mark.parametrize(("few", "many"), [(10_000, 30_000), pytest.param(100_000, 1_000_000, marks=pytest.mark.slow)])
def test_a_folder_takes_less_than_a_kilobyte_a_picture(few: int, many: int, tmp_path: Path) -> None:
    small, large = peak_of_folder(few, tmp_path / "small"), peak_of_folder(many, tmp_path / "large")
    print(f"driver: {small:.0f} MB at {few:,} files, {large:.0f} MB at {many:,}")
    assert large - small < 10 + (many - few) / 1000
