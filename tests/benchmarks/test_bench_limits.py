"""The machine's limits beside the rows of a training step: measured on the model's own matrices."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from command_line import Cli

from benchmarks import limits, machine_rows

CPU = torch.device("cpu")


def test_products_of_twice_the_matrices_take_twice_the_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate is operations over seconds: with a clock that stands, it counts the operations."""
    monkeypatch.setattr(limits, "timed", lambda run, device: [(run(), 2.0**-30)[1]])
    once = 2 * 16 * 64 * 128 * 2**30 / 1e9
    assert limits.product_rates([(64, 128)], 16, torch.float32, CPU) == [pytest.approx(once)]
    assert limits.product_rates([(64, 128), (128, 64)], 16, torch.float32, CPU) == [
        pytest.approx(4 * 16 * 64 * 128 * 2**30 / 1e9)
    ]


def test_rows_tell_the_machine_and_have_no_goal(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    sizes = ((64, 80), (80, 8), (80, 80))
    model = torch.nn.Sequential(*[torch.nn.Linear(*each) for each in sizes])
    captioner = SimpleNamespace(model=model, parts=lambda: {"vision": model[2]})
    monkeypatch.setattr(limits, "full_size_captioner", lambda name: captioner)
    monkeypatch.setattr(limits, "multiplies_in_bf16", lambda device: True)
    monkeypatch.setattr(limits, "COPIED_MB", 1)
    monkeypatch.setattr("benchmarks.step_rows.step_rows", lambda *_: [])
    assert limits.layer_shapes(captioner) == [(80, 64)]  # type: ignore[arg-type]
    done = cli("rollout", "--model", "clipcap-gpt2", "--json", package="benchmarks.__main__")
    assert done.status == 0, done.err
    rows = json.loads(done.out)["rows"]
    assert [row["unit"] for row in rows] == ["GFLOP/s"] * 4 + ["GB/s"]
    assert all(row["ours"] > 0 and row["ratio"] is None and row["theirs"] is None and not row["goal"] for row in rows)
    assert done.err.count("limit: ") == 5 and "fp32 products of 400 positions" in done.err
    (one,) = machine_rows("rollout", "bf16 products of 16", model="clipcap-gpt2")
    assert one.unit == "GFLOP/s"
    assert machine_rows("rollout", "fp32, both: generate", model="clipcap-gpt2") == []
    assert machine_rows("smile") == [] == machine_rows("rollout")
