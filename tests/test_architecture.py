"""The arrows between the parts, held over the syntax tree, and what importing costs."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "tellapart"
BESIDE = [ROOT.parents[1] / name for name in ("replication", "benchmarks")]  # evidence about the tool, not in the wheel

# Folders from the bottom to the top: a folder imports only from rows above its own, and from itself.
LAYERS = [
    "errors types utils",
    "language",
    "metrics models scenes",
    "data scorers",
    "captions compat report rewards",
    "boost captioners features objectives",
    "bags inference recipe",
    "evaluation integrations",
    "training",
    "jobs",
    "study",
    "cli",
    "__main__",
]
ABOVE = {name: set(" ".join(LAYERS[:row]).split()) for row, names in enumerate(LAYERS) for name in names.split()}
ABOVE |= {"utils": {"errors"}, "types": {"utils"}, "errors": set(), "": set()}

IMPORTS_IN_FUNCTIONS = 270  # at most; it may go down


def test_the_top_of_the_package_can_be_held_in_the_head() -> None:
    """At most 30 entries for `ls`, a `__pycache__` among them; every folder says in its docstring what it is."""
    assert len([path for path in ROOT.iterdir() if path.name != "__pycache__"]) <= 29
    for folder in {file.parent for file in ROOT.rglob("*.py")}:
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))), folder


def modules(file: Path, *, typing: bool = True) -> set[str]:
    """The modules of tellapart that a module imports, also inside functions, by full name."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if not typing and isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        for node in ast.walk(statement)
    }
    found = set()
    package = file.relative_to(ROOT.parent).parts[:-1]
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            inside = {f"{module}.{alias.name}" for alias in node.names}
            submodules = {name for name in inside if (ROOT.parent / (name.replace(".", "/") + ".py")).is_file()}
            found |= submodules or {module if module != "tellapart" else "tellapart.__version__"}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "LazyModule":
            found.add(ast.literal_eval(node.args[0]))
    return {name for name in found if name.startswith("tellapart.")}


def imports(file: Path) -> set[str]:
    """The folders of tellapart that a module needs when it runs."""
    return {name.split(".")[1] for name in modules(file, typing=False)}


def part(file: Path) -> str:
    return file.relative_to(ROOT).parts[0].removesuffix(".py").replace("__init__", "")


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT)))
def test_a_module_imports_only_what_lies_below_it(file: Path) -> None:
    folder = part(file)
    assert folder in ABOVE, f"no rule for '{folder}'; add it to LAYERS"
    wrong = imports(file) - ABOVE[folder] - {folder, "__version__"}
    assert not wrong, f"{file.relative_to(ROOT)} imports {sorted(wrong)}"


def test_the_package_does_without_what_lies_beside_it() -> None:
    """``replication/`` and ``benchmarks/`` are not in the wheel; ``tellapart tables`` looks for the first by name."""
    for file in sorted(ROOT.rglob("*.py")):
        if file.relative_to(ROOT) != Path("cli/tables.py"):
            assert not re.search(r"^\s*(from|import) (replication|benchmarks)\b", file.read_text("utf-8"), re.M), file


def test_what_is_imported_exists() -> None:
    """In tests as well; mypy takes a module that is not there for one without types."""
    places = [ROOT, *BESIDE, Path(__file__).parent]
    for file in sorted(path for place in places for path in place.rglob("*.py")):
        for name in re.findall(r"^ *from (tellapart[\w.]*) import", file.read_text(encoding="utf-8"), re.M):
            path = ROOT.parent / name.replace(".", "/")
            assert path.is_dir() or path.with_suffix(".py").is_file(), f"{file.name} imports {name}"


def test_a_class_has_a_name_of_its_own() -> None:
    """One name, one thing: no two modules define a class of the same name."""
    places: dict[str, list[str]] = {}
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_docstrings_begin_with_a_verb() -> None:
    """The help of a command is no docstring for readers of the code: it is left as it is."""
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    found = []
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, documented) and (text := ast.get_docstring(node)):
                command = any("command" in ast.unparse(each) for each in getattr(node, "decorator_list", ()))
                if text.split()[0].strip(",") in ("What", "Which", "Whether", "Where", "How") and not command:
                    found.append(f"{file.relative_to(ROOT)}: {text.splitlines()[0]}")
    assert not found


@pytest.mark.long
def test_what_a_module_needs_stands_at_its_top() -> None:
    """Imports inside functions are few: what loads late is a `LazyModule` at the top, where there is no circle."""
    found = {
        (file, node.lineno)
        for file in ROOT.rglob("*.py")
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert len(found) <= IMPORTS_IN_FUNCTIONS, f"{len(found)} imports inside functions"


@pytest.mark.long
def test_no_module_imports_in_a_circle() -> None:
    """Imports inside functions and for type checking count as well."""
    files = {".".join(file.relative_to(ROOT.parent).with_suffix("").parts): file for file in ROOT.rglob("*.py")}
    files = {name.removesuffix(".__init__"): file for name, file in files.items()}
    graph = {name: modules(file) & set(files) - {name} for name, file in files.items()}
    while ends := [name for name in graph if not graph[name] or not any(name in below for below in graph.values())]:
        graph = {name: below - set(ends) for name, below in graph.items() if name not in ends}
    assert not graph, f"in a circle, or between two: {sorted(graph)}"


# What reads or writes files, asks a server or runs a model: by the last part of the called name.
OPENING = re.compile(
    "(_?(read|open|load|fetch)(_.*)?|write_text|mkdir|exists|is_file|is_dir|i?r?glob|iterdir|stat|from_pretrained|memmap|"
    "fromfile|ParquetFile|File|connect|urlopen|TemporaryFile|demux|scan|readable|generate)"
)


def test_no_constructor_opens_a_file() -> None:
    """Files and connections are opened by classmethods, which hand them over."""
    for file in ROOT.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
        for made in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            methods = {f"self.{each.name}": each for each in made.body if isinstance(each, ast.FunctionDef)}
            todo, known = ["self.__init__", "self.__post_init__"], {**functions, **methods}
            for name in todo:  # and what it calls in this module
                calls = {
                    ast.unparse(node.func)
                    for node in ast.walk(known.get(name, ast.Pass()))
                    if isinstance(node, ast.Call)
                }
                opened = [call for call in calls if OPENING.fullmatch(call.rpartition(".")[2])]
                assert not opened, f"{file}: {made.name}.{name} calls {opened}; open in a classmethod"
                todo += sorted((calls & known.keys()) - set(todo))


def test_a_package_has_the_names_that_it_offers() -> None:
    """A table of names that are imported late is not seen by a type checker."""
    packages = [importlib.import_module(f"tellapart.{file.parent.name}") for file in sorted(ROOT.glob("*/__init__.py"))]
    offered = [(package, name) for package in packages for name in getattr(package, "__all__", ())]
    assert len(offered) > 50
    assert not [f"{package.__name__}.{name}" for package, name in offered if not hasattr(package, name)]


def test_nothing_unpickles() -> None:
    for file in (file for folder in (ROOT, *BESIDE) for file in folder.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        assert "import pickle" not in text and "allow_pickle=True" not in text, file
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                assert "weights_only=True" in ast.unparse(node), file


def printed(script: str) -> str:
    """What a script prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_is_light() -> None:
    script = "import tellapart, sys; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    assert printed(script) == "[]"


@pytest.mark.parametrize(
    "script",
    [
        "import tellapart.cli.app, tellapart.metrics; tellapart.cli.app.whole_app()",
    ],
    ids=["text metrics and help"],
)
def test_torch_is_not_loaded(script: str) -> None:
    assert printed(f"{script}; import sys; print('torch' in sys.modules)") == "False"
