"""A night in a minute: the command against a server that fails at random, killed with -9 five times."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fault_server import FaultServer
from PIL import Image

from tellapart.boost.job import SPARE

IN_FLIGHT = 16


def data_set(folder: Path, n: int) -> Path:
    """n pictures of a few pixels with captions, as JSON lines."""
    (folder / "photos").mkdir()
    lines = []
    for k in range(n):
        Image.new("RGB", (8, 8), (k % 256, k // 256, 7)).save(folder / "photos" / f"{k}.png")
        captions = [f"a dog with a ball number {k}", "the dog is on the lawn"]
        lines.append(json.dumps({"id": str(k), "image": f"photos/{k}.png", "captions": captions}))
    path = folder / "data.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def command(data: Path, out: Path, server: FaultServer, stages: str) -> list[str]:
    model = f"openai:m@{server.url}?timeout=3"
    models = ["--llm", model, *(["--mllm", model] if "describe" in stages else [])]
    made = [
        sys.executable,
        "-m",
        "tellapart",
        "boost",
        str(data),
        "--one-caption",
        "-o",
        str(out),
        *models,
        "--stages",
        stages,
    ]
    return [*made, "--in-flight", str(IN_FLIGHT), "--json"]


def answered(ledger: Path) -> set[str]:
    """The names of the requests whose answers are on whole lines of the ledger."""
    whole = ledger.read_bytes().rpartition(b"\n")[0].decode() if ledger.exists() else ""
    return {re.search(r"[0-9a-f]{12}", json.loads(line)["text"])[0] for line in whole.splitlines()}  # type: ignore[index]


def run_until(arguments: list[str], ledger: Path, lines: int) -> None:
    """Start the command, and kill it as soon as the ledger has so many lines."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    while process.poll() is None and (not ledger.exists() or ledger.read_bytes().count(b"\n") < lines):
        time.sleep(0.02)
    assert process.poll() is None, "the job ended before it was killed"
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "kills", "stages"),
    [(30, 2, "blend,describe,holistic"), pytest.param(500, 5, "blend", marks=pytest.mark.long)],
)
def test_killed_at_thirty_percent_faults(tmp_path: Path, n: int, kills: int, stages: str) -> None:
    data, questions = data_set(tmp_path, n), n * (stages.count(",") + 1)
    with FaultServer() as quiet:
        out = tmp_path / "quiet.jsonl"
        subprocess.run(command(data, out, quiet, stages), check=True, stdout=subprocess.DEVNULL)
    expected, total = out.read_bytes(), len(answered(tmp_path / "quiet.ledger.jsonl"))
    second = sum(len(value) for value in quiet.asked.values()) - questions
    assert expected.count(b"\n") == n and total == questions + second and all(len(v) == 1 for v in quiet.asked.values())

    out, ledger = tmp_path / "noisy.jsonl", tmp_path / "noisy.ledger.jsonl"
    known: list[set[str]] = []
    with FaultServer(rate=0.3) as noisy:
        for kill in range(kills):
            run_until(command(data, out, noisy, stages), ledger, (kill + 1) * total // (kills + 1))
            noisy.settle()
            known.append(answered(ledger))
            assert not out.exists()
            noisy.epoch += 1
        subprocess.run(command(data, out, noisy, stages), check=True, stdout=subprocess.DEVNULL)
    assert out.read_bytes() == expected
    assert answered(ledger) == answered(tmp_path / "quiet.ledger.jsonl") == set(noisy.asked)

    for epoch, there in enumerate(known, start=1):
        asked_later = {name for name, epochs in noisy.asked.items() if max(epochs) >= epoch}
        assert not there & asked_later, "what the ledger had was asked again"
    lost = [
        sum(min(whole) <= epoch < max(noisy.asked[name]) for name, whole in noisy.delivered.items() if whole)
        for epoch in range(kills)
    ]
    requests = sum(map(len, noisy.asked.values()))
    print(f"\n{n} items, {total} answers, {requests} requests, {noisy.faults} faults, asked again after a kill: {lost}")
    assert noisy.faults > 0.2 * requests and all(count <= IN_FLIGHT + IN_FLIGHT // SPARE for count in lost)
