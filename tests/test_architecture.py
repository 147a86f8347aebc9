"""The rules that the source tree satisfies: docs/design.md, "The folders and their order"."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import typer.main

from tellapart.cli.whole_app import whole_app

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "tellapart"

MAX_MODULE_LINES, MAX_FUNCTION_LINES, MAX_COMMAND_OPTIONS, MAX_IMPORTS_IN_FUNCTIONS = 700, 80, 25, 120
ONE_ALGORITHM = {"metrics/meteor_score.py"}  # a matcher that is not readable in parts

Tree = tuple[ast.Module, int]  # and its number of lines


def parse(folder: Path) -> dict[str, Tree]:
    """Returns the modules of a folder by their path in it."""
    texts = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}
    return {name: (ast.parse(text), text.count("\n")) for name, text in texts.items()}


def rows_of_folders() -> dict[str, int]:
    """Returns each folder's row in the table of docs/design.md: a module imports only from rows above its own."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\d+) \| (.*) \|$", page.partition("## The folders and their order")[2], re.MULTILINE)
    rows = {folder: int(row) for row, cell in table for folder in re.findall(r"`(\w+)`", cell)}
    return rows | {"__main__": len(table) + 1}


@cache
def package() -> dict[str, Tree]:
    """Returns the package's modules, parsed once: every worker imports this file, and one runs its tests."""
    return parse(PACKAGE)


@cache
def paths() -> dict[str, str]:
    """Returns the module's path by its name, such as ``tellapart.types``."""
    dotted = {name: name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in package()}
    return {f"tellapart.{module}": name for name, module in dotted.items()}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def imported(tree: ast.Module, *, at_runtime: bool = False) -> set[str]:
    """Returns the modules and names that a module imports, also inside functions, such as ``tellapart.types.Item``.

    at_runtime: without imports for type checkers.
    """
    typing = {
        id(node)
        for block in ast.walk(tree)
        if at_runtime and isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        for node in ast.walk(statement)
    }
    nodes = [node for node in ast.walk(tree) if id(node) not in typing]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return plain | {f"{node.module}.{alias.name}" for node in froms for alias in node.names}


def modules_of(names: set[str]) -> set[str]:
    """Returns the modules of this package among imported names. Raises AssertionError for one that does not exist."""
    found = set()
    for name in names:
        if name.startswith("tellapart."):
            module = name if name in paths() else name.rpartition(".")[0]
            assert module in paths() or module == "tellapart", f"{module} is imported and does not exist"
            found.add(module)
    return found - {"tellapart"}


def test_imports_point_downwards() -> None:
    rows = rows_of_folders()
    folders = {name.partition("/")[0].removesuffix(".py") for name in package()} - {"__init__"}
    assert rows.keys() == folders, "docs/design.md has a row for each folder"
    for name, (tree, _) in package().items():
        folder = name.partition("/")[0].removesuffix(".py")
        if folder != "__init__":
            others = {module.split(".")[1] for module in modules_of(imported(tree, at_runtime=True))} - {folder}
            wrong = [other for other in others if rows[other] >= rows[folder]]
            assert not wrong, f"{name} imports {wrong}, which do not lie below it"


def test_no_module_imports_in_a_circle() -> None:
    """Imports inside functions and for type checkers count as well."""
    graph = {name: modules_of(imported(package()[path][0])) - {name} for name, path in paths().items()}
    while ends := {name for name, below in graph.items() if not below & graph.keys()}:
        graph = {name: below for name, below in graph.items() if name not in ends}
    assert not graph, f"in a circle, or above one: {sorted(graph)}"


def test_the_package_does_without_what_lies_beside_it() -> None:
    """``tellapart tables`` alone looks for replication/, in a clone."""
    beside = {name for name, (tree, _) in package().items()
              if {each.partition(".")[0] for each in imported(tree)} & {"replication", "benchmarks"}}  # fmt: skip
    assert beside <= {"cli/tables.py"}


def test_a_class_has_a_name_of_its_own() -> None:
    names = Counter(node.name for tree, _ in package().values() for node in tree.body if isinstance(node, ast.ClassDef))
    assert not [name for name, count in names.items() if count > 1]


def test_sizes() -> None:
    long_modules = {name for name, (_, lines) in package().items() if lines > MAX_MODULE_LINES}
    assert long_modules <= ONE_ALGORITHM
    long_functions = {
        f"{name}:{function.name}"
        for name, (tree, _) in package().items()
        for function in functions(tree)
        if (function.end_lineno or 0) - function.lineno >= MAX_FUNCTION_LINES
    }
    assert not long_functions


def test_a_command_has_few_options() -> None:
    def commands(command: object, name: str = "") -> Iterator[tuple[str, int]]:
        for word, each in getattr(command, "commands", {}).items():
            yield from commands(each, f"{name} {word}".strip())
        if not hasattr(command, "commands"):
            yield name, sum(param.param_type_name == "option" for param in getattr(command, "params", ()))

    counts = dict(commands(typer.main.get_command(whole_app())))
    assert len(counts) > 30
    assert not [name for name, count in counts.items() if count > MAX_COMMAND_OPTIONS]


def test_imports_stand_at_the_top_of_a_module() -> None:
    """Inside functions only what is heavy and optional."""
    late = {
        (name, node.lineno)
        for name, (tree, _) in package().items()
        for function in functions(tree)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert len(late) <= MAX_IMPORTS_IN_FUNCTIONS, f"{len(late)} imports inside functions"


def test_every_folder_says_what_it_holds() -> None:
    """Modules and names in quotes exist: in the folder, as a folder of the package, or as names of the module."""
    for name, (tree, _) in package().items():
        if name.endswith("__init__.py"):
            docstring, folder = ast.get_docstring(tree), (PACKAGE / name).parent
            assert docstring, name
            places = {path.stem for path in (*folder.iterdir(), *PACKAGE.iterdir())}
            names = set(re.findall(r"\w+", " ".join(map(ast.unparse, tree.body[1:]))))
            unknown = set(re.findall(r"(?<!`)`([a-z_]+)`(?!`)", docstring)) - places - names
            assert not unknown, f"{name} names {unknown}, which it does not hold"


UNPICKLING = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def unpickles(tree: ast.Module) -> bool:
    """Says whether a module imports what unpickles, or loads arrays or weights in a way that does."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    loads = [node for node in calls if isinstance(node.func, ast.Attribute) and node.func.attr == "load"]
    return (
        any(name.partition(".")[0] in UNPICKLING for name in imported(tree) - {"pickle.UnpicklingError"})
        or any(passes_true(node, "allow_pickle") for node in calls)
        or any(ast.unparse(node.func) == "torch.load" and not passes_true(node, "weights_only") for node in loads)
    )


def passes_true(call: ast.Call, name: str) -> bool:
    return any(each.arg == name and ast.unparse(each.value) == "True" for each in call.keywords)


def test_nothing_unpickles() -> None:
    for line in ("from pickle import loads", "import pickle as p", "torch.load(path)", "np.load(p, allow_pickle=True)"):
        assert unpickles(ast.parse(line)), line
    assert not unpickles(ast.parse("import numpy\ntorch.load(path, weights_only=True)"))
    for modules in (package(), parse(ROOT / "replication"), parse(ROOT / "benchmarks")):
        assert not [name for name, (tree, _) in modules.items() if unpickles(tree)]


def modules_loaded_by(script: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{script}; import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_is_light() -> None:
    assert not {"torch", "transformers", "numpy"} & modules_loaded_by("import tellapart")
    script = "import tellapart.cli.whole_app, tellapart.metrics; tellapart.cli.whole_app.whole_app()"
    assert "torch" not in modules_loaded_by(script)
    assert "peft" not in modules_loaded_by("import tellapart.captioners")
