"""The scripts of ``examples/`` run as they stand, and say what they promise."""

from __future__ import annotations

import ast
import json
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> object:
    def run_example(name: str, *arguments: str) -> list[str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run_example


def test_there_are_five_and_they_are_short() -> None:
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert len(scripts) == 5
    for script in scripts:
        tree = ast.parse(script.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree) is not None
        statements = [
            n for n in ast.walk(tree) if isinstance(n, ast.stmt) and not isinstance(n, ast.Import | ast.ImportFrom)
        ]
        assert len(statements) <= 20, f"{script.name} is no short example: {len(statements)} statements"


def test_metrics(run) -> None:  # type: ignore[no-untyped-def]
    from pycocoevalcap.cider.cider import Cider

    lines = run("metrics.py")
    assert [line.split()[0] for line in lines] == ["bleu", "rouge_l", "cider_d"]
    references = {
        0: ["a red dog lies on green grass", "the dog is on the grass"],
        1: ["a man on a horse", "someone rides a brown horse"],
    }
    captions = {0: ["a red dog lies on the grass"], 1: ["a man rides a brown horse"]}
    cider, _ = Cider().compute_score(references, captions)
    assert float(lines[2].split()[1]) == pytest.approx(cider, abs=1e-4)


@pytest.mark.parametrize(("name", "steps"), [("smile_loss.py", 20), ("self_retrieval_reward.py", 3)])
def test_loops_of_ones_own(run, name: str, steps: int) -> None:  # type: ignore[no-untyped-def]
    lines = run(name)
    assert len(lines) == steps
    if name == "smile_loss.py":
        assert float(lines[-1]) < float(lines[0])


def test_bags(run) -> None:  # type: ignore[no-untyped-def]
    rows = [line.split() for line in run("bags.py")]
    assert len(rows) == 5 and all(len(set(row[1:])) == 3 for row in rows)
    similarity = [float(row[0]) for row in rows]
    assert similarity == sorted(similarity, reverse=True)


def test_best_of(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert "20 captions in best.jsonl" in run("best_of.py", "best.jsonl")[-1]
    for line in (tmp_path / "best.jsonl").read_text().splitlines():
        found = json.loads(line)
        assert found["score"] == max(each["score"] for each in found["candidates"])
