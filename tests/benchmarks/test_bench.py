"""Benchmarks: the arithmetic of rows, errors, and real comparisons on real data where the tools are installed."""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import run_bench
from benchmarks.process import run
from benchmarks.rows import Comparison, Row, RunResult, table
from tellapart.errors import TellapartError, UsageError
from tellapart.utils.progress import Progress

needs_tools = pytest.mark.skipif(
    importlib.util.find_spec("pycocoevalcap") is None or shutil.which("java") is None,
    reason="needs Java and pycocoevalcap: apt-get install default-jre-headless; pip install pycocoevalcap",
)


def comparison(
    ours: list[float], theirs: list[float], outputs: tuple[float, float] = (1.0, 1.0)
) -> tuple[Comparison, list]:
    calls: list[str] = []

    def implementation(name: str, amounts: list[float], value: float):  # type: ignore[no-untyped-def]
        def run_once(number: int) -> RunResult:
            calls.append(name)
            return RunResult(amounts[number], [value])

        return run_once

    return Comparison(
        "w", 4, "s", implementation("ours", ours, outputs[0]), implementation("theirs", theirs, outputs[1]), 0.01
    ), calls


def test_medians_in_turns() -> None:
    compared, calls = comparison([1, 9, 2], [10, 12, 90])
    with Progress(None, "") as progress:
        row = compared.run(3, progress)
        assert progress.done == 6
    assert calls == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert row.to_json() == {"work": "w", "ours": 2, "theirs": 12, "ratio": 6, "goal": 4, "unit": "s"}
    assert row.met and not Row("w", [4], [12], 4, "s").met


def test_times_of_different_numbers_are_not_compared() -> None:
    with (
        Progress(None, "") as progress,
        pytest.raises(TellapartError, match=": the two implementations compute different"),
    ):
        comparison([1], [1], (1.0, 1.5))[0].run(1, progress)


def test_the_table_says_the_spread_and_what_is_missed() -> None:
    from rich.console import Console

    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table([Row("a", [1, 9, 2], [12], 4, "s"), Row("b", [900.0], [1024], 2, "MB")], "t"))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["a", "2", "s", "(1–9)", "12", "s", "6.0×", "4×", "yes"] in lines
    assert ["b", "900", "MB", "1,024", "MB", "1.1×", "2×", "no"] in lines


@pytest.mark.long
def test_a_process_gives_its_json_its_time_and_its_memory() -> None:
    """Its own memory: that of this process is larger."""
    held = np.ones(100_000_000)  # 800 MB
    script = "import time; b = bytearray(200_000_000); time.sleep(0.3); print('[1]')"
    done = run([sys.executable, "-c", script])
    assert done.output == [1] and 0.3 < done.seconds < 20 and 200 < done.peak_mb < held.nbytes / 2e6


def test_a_process_that_fails_says_its_last_line() -> None:
    with pytest.raises(TellapartError, match="status 3: gone"):
        run([sys.executable, "-c", "import sys; print('x\\ngone', file=sys.stderr); sys.exit(3)"])


def test_what_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="did you mean 'metrics'"):
        run_bench("metric")
    monkeypatch.setenv("TELLAPART_DATA", str(tmp_path))
    with pytest.raises(UsageError, match="; set TELLAPART_DATA to the folder that contains 'published/'"):
        run_bench("metrics")
    (tmp_path / "published").mkdir()
    for name in ("clipcap_coco_on_coco.txt", "clipcap_concap_on_coco.txt", "references_coco_karpathy_test.txt"):
        (tmp_path / "published" / name).write_text("a\n")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(UsageError, match="requires Java"):
        run_bench("metrics")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install pycocoevalcap"):
        run_bench("metrics")


@needs_tools
@pytest.mark.oracle
@pytest.mark.data
def test_no_such_row() -> None:
    with pytest.raises(UsageError, match="no row contains 'spice'; available: CIDEr-D reward"):
        run_bench("metrics", only="spice")


@needs_tools
@pytest.mark.oracle
@pytest.mark.data
@pytest.mark.long
def test_the_command_prints_rows_of_real_data(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "metrics", "--repeat", "1", "--only", "cider-d", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)["rows"]
    assert [row["goal"] for row in rows] == [100, 25, 10] and [row["unit"] for row in rows] == ["ms", "ms", "s"]
    for row in rows:  # how fast, the docs say; here only that we are faster by far
        assert row["ratio"] == pytest.approx(row["theirs"] / row["ours"]) and row["ratio"] > 3
    assert "timing: CIDEr-D reward" in done.stderr
