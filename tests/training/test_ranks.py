"""Several processes train as one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parent))

from ranks_run import RUNS, STEPS  # noqa: E402

RUN = Path(__file__).parent / "ranks_run.py"
FEW = ["smile", "running_mean", "contrastive"]  # one of each way to share a batch
ENVIRONMENT = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}


def command(ranks: int) -> list[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    return torchrun if ranks > 1 else [sys.executable]


def runs(ranks: int, out: Path, captioner: Path, scorer: Path, names: list[str]) -> Path:
    done = subprocess.run(
        [*command(ranks), str(RUN), str(out), str(captioner), str(scorer), *names],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return out


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / f"step-{STEPS:07d}" / "weights.safetensors")


def logged(folder: Path) -> list[dict[str, float]]:
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in each.items() if not isinstance(value, str)} for each in records]


def assert_same(one: Path, other: Path) -> None:
    expected, found = weights(one), weights(other)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.allclose(tensor, found[name], rtol=0, atol=1e-6), (one.name, name)
    records = list(zip(logged(one), logged(other), strict=True))
    assert len(records) >= STEPS
    for there, here in records:
        assert here == pytest.approx(there, rel=1e-6, abs=1e-6), one.name


@pytest.mark.long
def test_two_ranks_train_as_one(tiny_captioner: Path, tiny_scorer: Path, tmp_path: Path) -> None:
    one, two = (runs(n, tmp_path / str(n), tiny_captioner, tiny_scorer, FEW) for n in (1, 2))
    for name in FEW:
        assert_same(one / name, two / name)


@pytest.mark.slow
def test_four_ranks_train_as_one_in_every_way_to_learn(
    tiny_captioner: Path, tiny_scorer: Path, tmp_path: Path
) -> None:
    one, two, four = (runs(n, tmp_path / str(n), tiny_captioner, tiny_scorer, []) for n in (1, 2, 4))
    for name in RUNS:
        assert_same(one / name, two / name)
        assert_same(one / name, four / name)
