"""Hooks of the documentation site: pages made from the code and the recipes, and links to files of the repository.

A link such as ``../tellapart/training/loop.py`` opens the source on a code host; on the site it leads to the reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tellapart"
RECIPES = PACKAGE / "recipe" / "shipped"
LINK = re.compile(r"\]\((?:\.\./)+(tellapart|recipes|README\.md|CHANGELOG\.md|CONTRIBUTING\.md|examples)([^)#\s]*)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made here."""
    for uri, text in (*reference_pages(), ("reference/recipes.md", recipes_page())):
        files.append(File.generated(config, uri, content=text))
    return files


def reference_pages() -> Iterator[tuple[str, str]]:
    """A page for each folder of the package, with every module's docstrings."""
    for folder in sorted(path.parent for path in PACKAGE.glob("*/__init__.py")):
        modules = sorted(file for file in folder.rglob("*.py") if file.name != "__init__.py")
        names = [f"tellapart.{folder.name}", *(dotted(file) for file in modules)]
        yield f"reference/{folder.name}.md", f"# {folder.name}\n\n" + "".join(f"::: {name}\n\n" for name in names)
    top = "".join(f"::: tellapart.{name}\n\n" for name in ("types", "errors", "progress"))
    yield "reference/index.md", "# Reference\n\nThe package, folder by folder.\n\n" + top


def recipes_page() -> str:
    """Every shipped recipe as it is."""
    files = [*sorted(RECIPES.glob("*.toml")), *sorted(RECIPES.glob("papers/*.toml"))]
    parts = [f"## {file.relative_to(RECIPES).with_suffix('')}\n\n```toml\n{file.read_text()}```\n" for file in files]
    return "# Recipes\n\n`tellapart train NAME` trains one of these.\n\n" + "\n".join(parts)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files of the repository lead to the page that shows them."""
    up = "../" * page.file.src_uri.count("/")
    return LINK.sub(lambda link: f"]({up}{target(link.group(1), link.group(2))})", markdown)


def target(top: str, rest: str) -> str:
    """The page of the site, with its anchor, for a file of the repository."""
    if top == "recipes":
        name = rest.strip("/").removesuffix(".toml")
        return f"reference/recipes.md{'#' + name.replace('/', '') if name else ''}"
    if top == "tellapart":
        folder, _, module = rest.strip("/").removesuffix(".py").partition("/")
        if not module or not (PACKAGE / folder / f"{module}.py").is_file():
            return "reference/index.md" if folder in ("", "types", "errors", "progress") else f"reference/{folder}.md"
        return f"reference/{folder}.md#tellapart.{folder}.{module.replace('/', '.')}"
    return "index.md"


def dotted(file: Path) -> str:
    """The module's name."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)
