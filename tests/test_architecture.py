"""The arrows between the parts, held over the syntax tree, and what importing costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "tellapart"

# part -> the parts it may import. `types`, `errors` and the small helpers below them are free for all.
FREE = {"types", "errors", "progress", "messages", "text", "files", "lazily", ""}
ALLOWED: dict[str, set[str]] = {
    "types": set(),
    "errors": set(),
    "progress": set(),
    "messages": set(),
    "text": set(),
    "files": set(),
    "dotted": set(),
    "feature_files": set(),
    "views": {"feature_files"},
    "tokens": set(),
    "vision": set(),
    "metrics": set(),
    "decode": set(),
    "scenes": set(),
    "loading": set(),
    "scorers": {"dotted", "loading", "tokens", "vision"},
    "pictures": set(),
    "clips": {"pictures"},
    "data": {"scenes", "pictures", "clips"},
    "boost": {"data", "loading", "metrics", "pictures", "report", "scenes"},
    "rowstore": set(),
    "features": {"rowstore", "pictures", "clips", "data"},
    "captioners": {"decode", "dotted", "tokens", "loading", "vision", "scorers"},
    "rewards": {"metrics"},
    "objectives": {"decode"},
    "bags": {"captions_file", "features", "data"},
    "benchmarks": {"bags", "data", "metrics", "scenes"},
    "batches": {"bags", "training_pixels"},
    "training_pixels": {"features"},
    "review": {"bags", "data"},
    "hints": set(),
    "recipe_bags": {"recipe_fields"},
    "recipe": {"decode", "hints", "recipe_bags", "recipe_fields", "recipe_objectives"},
    "recipe_fields": set(),
    "recipe_objectives": {"decode", "dotted", "recipe_fields"},
    "run": {"recipe"},
    "claims": {
        "recipe", "run", "stages", "train", "bags", "boost", "data", "features", "loading", "captioners", "scorers",
        "decode", "scenes", "metrics", "objectives", "benchmarks", "report",
    },
}  # fmt: skip
ON_TOP = {"cli", "bench", "claims", "report", "demo", "train", "stages", "assess", "evaluate", "caption"}


def imports(file: Path) -> set[str]:
    """The parts of tellapart that a module imports, also inside functions, but not for type checking only."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found = set()
    package = file.relative_to(ROOT.parent).parts[:-1]
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "tellapart" else [module]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("tellapart.")}
    return found


def part(file: Path) -> str:
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_a_part_imports_only_what_lies_below_it(name: str) -> None:
    files = [file for file in ROOT.rglob("*.py") if part(file) == name]
    assert files, f"the rules name '{name}', which is not there"
    for file in files:
        wrong = imports(file) - ALLOWED[name] - FREE - {name, "__version__"}
        assert not wrong, f"{file.relative_to(ROOT)} imports {sorted(wrong)}"


def test_nothing_imports_the_command_line() -> None:
    assert [
        file for file in ROOT.rglob("*.py") if "cli" in imports(file) and part(file) not in ("cli", "__main__")
    ] == []


def test_nothing_unpickles() -> None:
    for file in ROOT.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "import pickle" not in text and "allow_pickle=True" not in text, file
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                assert "weights_only=True" in ast.unparse(node), file


def test_importing_is_light() -> None:
    script = "import tellapart, sys; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_text_metrics_and_help_do_not_load_torch() -> None:
    script = "import tellapart.cli, tellapart.evaluate, tellapart.metrics, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
