"""The bench of SMILE, on a layer small enough for a test: the rows, and that memory is really measured."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks import smile
from tellapart.errors import TellapartError, UsageError


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name, size in (("B", 4), ("T", 8), ("H", 16), ("V", 500)):
        monkeypatch.setattr(smile, name, size)


def test_both_rows_compare_the_same_numbers() -> None:
    seconds, memory = smile.rows(2)
    assert (seconds.unit, seconds.goal, memory.unit, memory.goal) == ("ms", 5, "MB", 10)
    assert "cpu: time" in seconds.work and "cpu: peak memory" in memory.work
    scores = 4 * 4 * 8 * 500 / 1e6  # B×T×V in float32
    assert memory.theirs > 2 * scores > memory.ours > 0
    assert min(*seconds.ours_R, *seconds.theirs_R) > 0


def test_only_some_rows() -> None:
    assert [row.unit for row in smile.rows(1, "TIME")] == ["ms"]
    with pytest.raises(UsageError, match="no row contains 'cuda'"):
        smile.rows(1, "cuda")


def test_another_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = smile.algorithm_1
    monkeypatch.setattr(smile, "algorithm_1", lambda *args: 1.0001 * theirs(*args))
    with pytest.raises(TellapartError, match="compute different numbers"):
        smile.rows(1, "time")


def test_the_peak_is_what_was_held_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    def step() -> Any:
        first = torch.ones(1_000_000)
        second = first.exp()
        del first
        return second + 1

    amount, found = smile.peak(step, "cpu", 0)
    assert amount == pytest.approx(8, abs=0.1) and len(found) == 1_000_000
    assert smile.peak(step, "cpu", 4_000_000)[0] == pytest.approx(4, abs=0.1)
    assert capfd.readouterr().err == ""
