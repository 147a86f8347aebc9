"""The notebooks run from top to bottom, offline on a CPU, and show what their text says."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
SMALLER = {"finetune_on_scenes": ("--steps 20", "--steps 5")}  # what a notebook has, and what makes it quick
NOTEBOOKS = ROOT / "notebooks"


@pytest.fixture
def execute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a notebook in an empty folder, with this interpreter as its kernel, and returns what its cells printed."""
    kernel = tmp_path / "share" / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "Python 3", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def run(name: str) -> list[str]:
        notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
        large, small = SMALLER.get(name, ("", ""))
        assert any(large in cell.source for cell in notebook.cells)
        for cell in notebook.cells:
            cell.source = cell.source.replace(large, small)
        folder = tmp_path / "work"
        folder.mkdir()
        client = nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(folder)}})
        client.execute()
        return [text_of(cell) for cell in notebook.cells if cell.cell_type == "code"]

    return run


def text_of(cell: Any) -> str:
    """What a cell printed and its value, without warnings on stderr."""
    outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return re.sub(r"\x1b\[[0-9;]*m", "", "".join(texts))


def test_they_are_stored_without_outputs() -> None:
    files = sorted(NOTEBOOKS.glob("*.ipynb"))
    assert len(files) == 3
    for file in files:
        code = [cell for cell in nbformat.read(file, as_version=4).cells if cell.cell_type == "code"]
        assert code and all(not cell.outputs and cell.execution_count is None for cell in code), file.name


def test_caption_and_check(execute: Any) -> None:
    assert shutil.which("tellapart")
    count, caption, rows, in_memory, clean, damaged = execute("caption_and_check")
    assert count == "24" and "24" in caption and len(rows.splitlines()) == 5
    assert len(eval(in_memory)) == 3
    found = "ends in “a”", "“a shape” 4 times"
    assert "shared" in clean and not any(each in clean for each in found)
    assert all(each in damaged for each in found) and "damaged.html" in damaged


def test_compare(execute: Any) -> None:
    captions, values, differences, signature, table = execute("compare_captions")
    assert captions.startswith("plain |") and len(values.splitlines()) == 10
    said = {line.split()[0]: float(re.search(r": ([+-]\d+\.\d+)", line)[1]) for line in differences.splitlines()}  # type: ignore[index]
    assert said["recall@1.lookalike"] > 0 and said["hallucination_rate"] > 0 and said["cider"] < 0
    assert "scenes" in signature and "CIDEr" in table.replace("cider", "CIDEr")


def test_finetune(execute: Any) -> None:
    _, files, metrics, changed, report, captions = execute("finetune_on_scenes")
    assert {"model", "report.html", "results.json", "recipe.toml"} <= set(eval(files))
    assert len(metrics.splitlines()) == 5 and int(changed.split()[0]) > 0
    assert "report.html" in report and len(eval(captions)) == 3
