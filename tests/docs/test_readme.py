"""The Python of the README and of the pages that show whole programs runs as it stands, with small models."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_commands import with_small_names
from workspace import make_workspace

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_python_of_the_readme_runs(
    tiny_captioner: Path,
    tiny_scorer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It captions, scores each caption with its picture, and prints CIDEr with its interval."""
    make_workspace(tmp_path / "here", tiny_captioner, tiny_scorer)
    monkeypatch.chdir(tmp_path / "here")
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert block and len([line for line in block[1].splitlines() if line.strip()]) <= 10
    exec(compile(with_small_names(block[1]), "README.md", "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    assert "tensor([" in printed and re.search(r"Interval\(value=.*low=.*high=.*n=\d+\)", printed)


def test_its_picture_is_made_by_the_tool_that_it_names() -> None:
    """The caption under the picture is that of the scenes that tools/readme_image.py draws."""
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert "look-alikes.png" in text and "a pink plain circle and a brown plain star on the wood" in text
    tool = (ROOT / "tools" / "readme_image.py").read_text("utf-8")
    assert "docs/images/look-alikes.png" in tool
