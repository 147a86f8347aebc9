"""``benchmarks bags``: its groups run alone, and its searches are the real searches."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import bags, process
from benchmarks.rows import Row, table
from tellapart.errors import TellapartError, UsageError

pytest.importorskip("faiss")
N = 1500


def test_each_group_can_be_run_alone() -> None:
    assert list(bags.workloads(1, "growth")) == [
        f"growth, exact top 200, {n} × 512: time" for n in ("10,000", "30,000", "100,000", "300,000")
    ]
    assert list(bags.workloads(1, "approximate")) == [
        f"approximate top 200, {n} × 512" for n in ("100,000", "1,000,000")
    ]
    assert list(bags.workloads(1, "30,000")) == ["growth, exact top 200, 30,000 × 512: time"]
    assert list(bags.workloads(1, "113,287")) == ["exact top 200, 113,287 × 512: time"]
    assert len(bags.workloads(1, "")) == 7
    with pytest.raises(UsageError, match="no row contains 'grwth'; available: exact top 200, 113,287"):
        bags.workloads(1, "grwth")


def test_by_default_the_rows_that_end_within_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """COCO's pictures once, the short part of the growth as often as asked; --only and --full choose among all."""
    asked: list[tuple[int, int]] = []
    for name in ("_against_faiss", "_approximate"):
        monkeypatch.setattr(bags, name, lambda work, n, repeat, **_: asked.append((n, repeat)) or [])
    bags.rows(3)
    assert asked == [(113_287, 1), (10_000, 3), (30_000, 3)]
    asked.clear()
    bags.rows(3, "300,000")
    assert asked == [(300_000, 3)]
    asked.clear()
    bags.rows(2, full=True)
    assert len(asked) == 7 and {repeat for _, repeat in asked} == {2}


def test_ours_and_faiss_find_the_same() -> None:
    ours, theirs = (bags.run_search(search, N) for search in ("ours", "faiss"))
    bags._check("w", ours["rows"], theirs["rows"])
    assert len(ours["rows"]) == 200 and ours["seconds"] > 0 and ours["bags_seconds"] > 0
    with pytest.raises(TellapartError, match="the two searches share 0"):
        bags._check("w", ours["rows"], [[-1] * 200] * 200)


def test_the_approximate_way_says_what_it_takes_and_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search and the measurement are real, in this process."""
    runs: dict[str, process.CompletedRun] = {}

    def run(search: str, n: int) -> process.CompletedRun:
        runs[search] = process.CompletedRun(json.loads(json.dumps(bags.run_search(search, n))), 1.0, 321.0)
        return runs[search]

    monkeypatch.setattr(bags, "_run", run)
    monkeypatch.setattr(bags, "SAMPLE", 500)
    time, build, search, memory, recall = bags._approximate("w", N, 1)
    assert time.ours == pytest.approx(build.ours + search.ours)
    assert time.theirs == pytest.approx(3 * runs["flat-sample"].output["seconds"])
    assert "(500 queries, times 3)" in time.work and memory.ours == 321
    assert 20 < recall.ours < 100 and recall.unit == "%" and recall.theirs is None and recall.met


def test_the_module_prints_json_for_its_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bags", "flat-sample", "300"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["seconds"] > 0


def test_uneven_features_have_few_directions_that_count() -> None:
    even_D, uneven_D = (np.sort(np.var(bags.features(800, uneven), axis=0))[::-1] for uneven in (False, True))
    assert even_D[:50].sum() / even_D.sum() < 0.15 and uneven_D[:50].sum() / uneven_D.sum() > 0.5
    assert np.allclose(np.linalg.norm(bags.features(100, True), axis=1), 1, atol=1e-6)


def test_a_fact_has_no_ratio() -> None:
    from rich.console import Console

    row, curve = Row("recall", [97.5], [], 0.0, "%"), Row("curve", [2.0], [3.0], 0.0, "s")
    assert row.to_json() == {"work": "recall", "ours": 97.5, "theirs": None, "ratio": None, "goal": 0.0, "unit": "%"}
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table([row, curve], "t"))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["recall", "97.5", "%", "–", "–", "–", "–"] in lines
    assert ["curve", "2", "s", "3", "s", "1.5×", "–", "–"] in lines
