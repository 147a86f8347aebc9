"""Builds the documentation site into build/site: python tools/docs_site.py [--serve]

Zensical runs no hooks of MkDocs, so this script copies docs/ to build/docs, adds the pages that are made from the code
(recipes, objectives and rewards, examples, changelog, API reference), points links to files of the repository at
those pages, and runs Zensical on the copy. A broken link is an error.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from tellapart.objectives import OBJECTIVES
from tellapart.rewards import REWARDS, RewardOptions

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "tellapart"
RECIPES = PACKAGE / "recipe" / "shipped"
BUILD = ROOT / "build"
PAGES = BUILD / "docs"
TOP = ("CONTRIBUTING", "CHANGELOG", "AGENTS")  # pages at the top of the repository
FOLDERS = {"objectives": "reference/objectives.md", "recipe/shipped": "reference/shipped-recipes.md"}
LINK = re.compile(
    r"\]\((?:\.\./)+(src/tellapart|recipes|README\.md|CHANGELOG\.md|CONTRIBUTING\.md|AGENTS\.md|examples|notebooks)"
    r"([^)#\s]*)\)"
)


def main() -> int:
    """Writes the pages and runs Zensical; returns its exit status."""
    write_pages()
    write_configuration()
    zensical = Path(sys.executable).parent / "zensical"
    command = ["serve"] if "--serve" in sys.argv else ["build", "--strict", "--clean"]
    command += ["--config-file", str(BUILD / "mkdocs.yml")]
    return subprocess.run([str(zensical), *command], cwd=ROOT, check=False).returncode


def write_pages() -> None:
    """Writes build/docs anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    for uri, text in (*reference_pages(), *repository_pages()):
        if (PAGES / uri).exists():
            raise SystemExit(f"{uri}: a page in docs/ has the same name as a generated page")
        (PAGES / uri).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / uri).write_text(text, encoding="utf-8")
    for page in PAGES.rglob("*.md"):
        up = "../" * (len(page.relative_to(PAGES).parts) - 1)
        text = page.read_text(encoding="utf-8")
        linked = LINK.sub(lambda link, up=up: f"]({up}{target(link[1], link[2])})", text)
        if linked != text:
            page.write_text(linked, encoding="utf-8")


def write_configuration() -> None:
    """Writes build/mkdocs.yml: mkdocs.yml with the pages of the code in its navigation."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    entries = "".join(f"      - {uri}\n" for uri, _ in reference_pages())
    (BUILD / "mkdocs.yml").write_text(re.sub(r" +- api/index\.md.*\n", entries, text), encoding="utf-8")


def reference_pages() -> Iterator[tuple[str, str]]:
    """Yields the top of the package, then a page for each folder, with every module's docstrings."""
    top = "".join(f"::: tellapart.{name}\n\n" for name in ("types", "errors"))
    yield "api/index.md", "# tellapart\n\nThe package, folder by folder.\n\n" + top
    for folder in sorted(path.parent for path in PACKAGE.glob("*/__init__.py")):
        modules = sorted(file for file in folder.rglob("*.py") if file.name != "__init__.py")
        names = [f"tellapart.{folder.name}", *(dotted(file) for file in modules)]
        yield f"api/{folder.name}.md", f"# {folder.name}\n\n" + "".join(f"::: {name}\n\n" for name in names)


def repository_pages() -> Iterator[tuple[str, str]]:
    """Yields recipes, objectives and rewards, examples, notebooks, and the pages at the top of the repository."""
    yield "reference/shipped-recipes.md", recipes_page()
    yield "reference/objectives.md", objectives_page()
    yield "reference/examples.md", examples_page()
    yield "reference/notebooks.md", notebooks_page()
    for name in TOP:
        text = (ROOT / f"{name}.md").read_text("utf-8").replace("](docs/", "](")
        yield f"{name.lower()}.md", re.sub(rf"\]\(({'|'.join(TOP)})\.md", lambda link: link[0].lower(), text)


def recipes_page() -> str:
    """Returns every shipped recipe in full."""
    files = [*sorted(RECIPES.glob("*.toml")), *sorted(RECIPES.glob("papers/*.toml"))]
    parts = [f"## {file.relative_to(RECIPES).with_suffix('')}\n\n```toml\n{file.read_text()}```\n" for file in files]
    return "# Shipped recipes\n\nTrain one of these with `tellapart train NAME`.\n\n" + "\n".join(parts)


def objectives_page() -> str:
    """Returns every objective and reward with its settings."""
    parts = ["# Objectives and rewards", "Values of `kind` in a recipe's `[objective]` and its `rewards`."]
    for title, registry in (("Objectives", OBJECTIVES), ("Rewards", REWARDS)):
        parts.append(f"## {title}")
        shared = set(RewardOptions.model_fields) if registry is REWARDS else set()
        for name, entry in sorted(registry.builtin().items()):
            parts += [f"### {name}", inspect.getdoc(entry.options) or entry.help, settings_table(entry.options, shared)]
    parts += ["### Every reward", settings_table(RewardOptions, set())]
    return "\n\n".join(filter(None, parts)) + "\n"


def settings_table(options: type[BaseModel] | None, shared: set[str]) -> str:
    """Returns a table of the options with their defaults, without ``kind`` and ``shared``; empty if none remain."""
    rows = []
    for key, field in (options.model_fields if options else {}).items():
        if key not in {"kind", *shared}:
            plain = isinstance(field.default, str | bool | int | float)
            default = "required" if field.is_required() else f"`{json.dumps(field.default)}`" if plain else ""
            rows.append(f"| `{key}` | {default} | {field.description or ''} |")
    return "\n".join(["| key | default | |", "|---|---|---|", *rows]) if rows else ""


def examples_page() -> str:
    """Returns every script of examples/ in full."""
    parts = [f"## {file.stem}\n\n```python\n{file.read_text()}```\n" for file in sorted(ROOT.glob("examples/*.py"))]
    return "# Examples\n\nShort scripts that run as they are.\n\n" + "\n".join(parts)


def notebooks_page() -> str:
    """Returns the text and the code of every notebook."""
    parts = []
    for file in sorted(ROOT.glob("notebooks/*.ipynb")):
        for cell in json.loads(file.read_text("utf-8"))["cells"]:
            text = "".join(cell["source"])
            deeper = f"#{text}" if text.startswith("#") else text
            parts.append(deeper if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    intro = "# Notebooks\n\nThey are in `notebooks/`, run on a CPU without network, and are executed by a test."
    return "\n\n".join([intro, *parts])


def target(top: str, rest: str) -> str:
    """Returns the page of the site, with its anchor, for a file of the repository."""
    if top == "recipes":
        name = rest.strip("/").removesuffix(".toml")
        return f"reference/shipped-recipes.md{'#' + name.replace('/', '') if name else ''}"
    if top == "src/tellapart" and rest.strip("/") in FOLDERS:
        return FOLDERS[rest.strip("/")]
    if top == "src/tellapart":
        folder, _, module = rest.strip("/").removesuffix(".py").partition("/")
        if not module or not (PACKAGE / folder / f"{module}.py").is_file():
            return "api/index.md" if folder in ("", "types", "errors") else f"api/{folder}.md"
        return f"api/{folder}.md#tellapart.{folder}.{module.replace('/', '.')}"
    if top == "examples":
        return f"reference/examples.md#{Path(rest).stem}"
    pages = {"README.md": "index.md", "notebooks": "reference/notebooks.md"}
    return pages.get(top, top.lower())


def dotted(file: Path) -> str:
    """Returns the module's name."""
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)


if __name__ == "__main__":
    raise SystemExit(main())
