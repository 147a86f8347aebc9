"""The arrows between the parts, held over the syntax tree, and what importing costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "tellapart"

# Folders from the bottom to the top: a folder imports only from rows above its own, and from itself.
LAYERS = [
    "errors types progress utils",
    "images metrics models scenes",
    "data objectives recipe rewards report scorers",
    "boost captioners features",
    "bags inference",
    "evaluation review",
    "training",
    "bench claims",
    "cli",
    "__main__",
]
ABOVE = {name: set(" ".join(LAYERS[:row]).split()) for row, names in enumerate(LAYERS) for name in names.split()}
ABOVE |= {"utils": {"errors"}, "progress": {"utils"}, "types": {"utils"}, "errors": set(), "": set()}


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
    return file.relative_to(ROOT).parts[0].removesuffix(".py").replace("__init__", "")


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT)))
def test_a_module_imports_only_what_lies_below_it(file: Path) -> None:
    folder = part(file)
    assert folder in ABOVE, f"no rule for '{folder}'; add it to LAYERS"
    wrong = imports(file) - ABOVE[folder] - {folder, "__version__"}
    assert not wrong, f"{file.relative_to(ROOT)} imports {sorted(wrong)}"


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
    script = (
        "import sys, tellapart.cli.app, tellapart.evaluation.evaluate, tellapart.metrics; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
