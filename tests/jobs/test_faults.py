"""Jobs under ``kill -9``: nodes, workers and the driver; and shards that cannot be done."""

from __future__ import annotations

import json
import signal
import tarfile
from io import BytesIO
from pathlib import Path

import numpy as np
import psutil
import pytest
from command_line import Cli
from PIL import Image
from poisoned import CRASH, MEMORY
from ray_nodes import Driver, Nodes, results, wait_for

from tellapart.utils.allowed_code import allow_code

HERE = Path(__file__).parent
SHARE = {"--workers": 3, "--beams": 1, "--max-tokens": 3}


def write_tars(folder: Path, shards: int, each: int) -> None:
    """Tars of 24×16 pictures of noise, as WebDataset has them."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for shard in range(shards):
        noise = random.integers(0, 255, (each, 16, 24, 3), dtype=np.uint8)
        with tarfile.open(folder / f"{shard:05d}.tar", "w") as tar:
            for number in range(each):
                made = BytesIO()
                Image.fromarray(noise[number]).save(made, "PNG")
                member = tarfile.TarInfo(f"{number:06d}.png")
                member.size = len(made.getvalue())
                tar.addfile(member, BytesIO(made.getvalue()))


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started here find `poisoned`."""
    import os

    monkeypatch.setenv("PYTHONPATH", f"{os.environ.get('PYTHONPATH', '')}:{HERE}")
    monkeypatch.syspath_prepend(HERE)
    allow_code("poisoned:make")


def raylets(address: str) -> list[psutil.Process]:
    """Returns the nodes of this cluster that run; another test's cluster may run beside it."""
    running = psutil.process_iter(["name", "cmdline"])
    return [p for p in running if "raylet" in (p.info["name"] or "") and address in " ".join(p.info["cmdline"] or ())]


def disturb(
    tmp_path: Path, captioner: Path, shards: int, each: int, nodes: int, workers: int, drivers: int, seconds: float,
    delay: float,
) -> None:  # fmt: skip
    """Caption on three nodes while nodes, workers and the driver are killed, and compare with the plain command."""
    data, out = tmp_path / "data", tmp_path / "captions.jsonl"
    write_tars(data, shards, each)
    model = f"poisoned:make?model={captioner}&delay={delay}"
    options = ("--beams", 1, "--max-tokens", 3)
    plain = Driver("caption", f"poisoned:make?model={captioner}", data, "-o", tmp_path / "plain.jsonl", *options,
                   log=tmp_path / "plain.log")  # fmt: skip
    assert plain.wait(seconds) == 0, (tmp_path / "plain.log").read_text()

    faults = ["worker"] * workers + ["node"] * nodes + ["driver"] * drivers
    np.random.default_rng(1).shuffle(faults)
    seen: dict[str, tuple[int, int]] = {}
    killed: dict[str, set[int]] = {"worker": set(), "node": set(), "driver": set()}
    folder = Path(f"{out}.job")
    with Nodes() as cluster:
        driver = Driver("caption", model, data, "-o", out, *options, "--ray", cluster.address, "--workers", 3,
                        log=tmp_path / "job.log")  # fmt: skip
        assert raylets(cluster.address)
        for number, fault in enumerate(faults, start=1):
            seen |= wait_for(folder, number * shards // (len(faults) + 2), driver, seconds)
            assert driver.process.poll() is None, (tmp_path / "job.log").read_text()
            if fault == "driver":
                killed[fault].add(driver.process.pid)
                driver.kill()
                assert driver.process.returncode == -signal.SIGKILL
                there = results(folder)
                driver.start()
                seen |= there
            else:
                pid = cluster.ask(fault)
                assert not psutil.pid_exists(pid), f"{fault} {pid} lives"
                killed[fault].add(pid)
        assert driver.wait(seconds) == 0, (tmp_path / "job.log").read_text()
    assert {fault: len(pids) for fault, pids in killed.items()} == {
        "worker": workers, "node": nodes, "driver": drivers,
    }  # fmt: skip
    after = results(folder)
    assert len(after) == shards
    assert {name: after[name] for name in seen} == seen, "a finished shard was done again"
    written = out.read_bytes()
    assert written == (tmp_path / "plain.jsonl").read_bytes()
    ids = [json.loads(line)["id"] for line in written.splitlines()]
    assert len(set(ids)) == len(ids) == shards * each
    assert not raylets(cluster.address)


@pytest.mark.long
def test_killed_nodes_workers_and_drivers(code: None, tiny_captioner: Path, tmp_path: Path) -> None:
    disturb(tmp_path, tiny_captioner, 24, 100, nodes=1, workers=2, drivers=1, seconds=150, delay=0.003)


@pytest.mark.slow
def test_two_hundred_thousand_items(code: None, tiny_captioner: Path, tmp_path: Path) -> None:
    disturb(tmp_path, tiny_captioner, 200, 1000, nodes=5, workers=10, drivers=2, seconds=3000, delay=0.0)


@pytest.mark.long
def test_poisoned_shards_are_set_aside(cli: Cli, code: None, tiny_captioner: Path, tmp_path: Path) -> None:
    """One picture crashes the process, another its memory: retried, listed with the reason, exit status 1."""
    photos = tmp_path / "photos"
    photos.mkdir()
    noise = np.random.default_rng(0).integers(0, 255, (40, 20, 30, 3), dtype=np.uint8)
    for number in range(40):
        Image.fromarray(noise[number]).save(photos / f"{number:02d}.png")
    Image.new("RGB", (30, 20), CRASH).save(photos / "13.png")
    Image.new("RGB", (30, 20), MEMORY).save(photos / "27.png")
    out = tmp_path / "a.jsonl"
    command = ("caption", f"poisoned:make?model={tiny_captioner}", photos, "-o", out, "--beams", 1, "--max-tokens", 3,
               "--workers", 2, "--shard-items", 8)  # fmt: skip
    done = cli(*command)
    assert done.status == 1, done.err
    listed = [line for line in done.err.splitlines() if line.startswith("failed: ")]
    assert len(listed) == 2 and "shard 1 (" in listed[0] and "shard 3 (" in listed[1]
    assert "the worker terminated" in listed[0] and "(3 attempts)" in listed[0]
    assert "OutOfMemoryError: CUDA out of memory" in listed[1] and "(3 attempts)" in listed[1]
    assert "2 of 5 shards failed; run the same command again to retry" in done.err and not out.exists()
    status = json.loads(cli("job", "status", f"{out}.job", "--json").out)
    assert (status["state"], status["done"], len(status["set_aside"])) == ("failed", 3, 2)

    refused = cli("job", "merge", f"{out}.job")
    assert refused.status == 2 and "2 of 5 shards are not done" in refused.err
    assert cli("job", "merge", f"{out}.job", "--without-failed").status == 0
    ids = [json.loads(line)["id"] for line in out.read_text().splitlines()]
    assert ids == [f"{number:02d}.png" for number in range(40) if number // 8 not in (1, 3)]

    for name in ("13.png", "27.png"):  # mended: only these two shards are done
        Image.fromarray(noise[0]).save(photos / name)
    kept = results(Path(f"{out}.job"))
    assert cli(*command).status == 0
    assert len(out.read_text().splitlines()) == 40
    assert {name: state for name, state in results(Path(f"{out}.job")).items() if name in kept} == kept
