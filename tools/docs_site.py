"""Hooks of the documentation site: pages made from the code and the recipes, and links to files of the repository.

A link such as ``../src/tellapart/types.py`` opens the source on a code host; on the site it leads to the reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "tellapart"
RECIPES = PACKAGE / "recipe" / "shipped"
LINK = re.compile(
    r"\]\((?:\.\./)+(src/tellapart|recipes|README\.md|CHANGELOG\.md|CONTRIBUTING\.md|examples)([^)#\s]*)\)"
)


def on_config(config: Any) -> Any:
    """Add a page for each folder of the code to the section Reference."""
    reference = next(section["Reference"] for section in config.nav if "Reference" in section)
    reference.append({"Code": [uri for uri, _ in reference_pages()]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made here."""
    made = [("reference/recipes.md", recipes_page()), ("reference/examples.md", examples_page())]
    copied = [(f"{name.lower()}.md", (ROOT / f"{name}.md").read_text()) for name in ("CONTRIBUTING", "CHANGELOG")]
    for uri, text in (*reference_pages(), *made, *copied):
        files.append(File.generated(config, uri, content=text))
    return files


def reference_pages() -> Iterator[tuple[str, str]]:
    """The top of the package, then a page for each folder, with every module's docstrings."""
    top = "".join(f"::: tellapart.{name}\n\n" for name in ("types", "errors"))
    yield "reference/index.md", "# tellapart\n\nThe package, folder by folder.\n\n" + top
    for folder in sorted(path.parent for path in PACKAGE.glob("*/__init__.py")):
        modules = sorted(file for file in folder.rglob("*.py") if file.name != "__init__.py")
        names = [f"tellapart.{folder.name}", *(dotted(file) for file in modules)]
        yield f"reference/{folder.name}.md", f"# {folder.name}\n\n" + "".join(f"::: {name}\n\n" for name in names)


def recipes_page() -> str:
    """Every shipped recipe as it is."""
    files = [*sorted(RECIPES.glob("*.toml")), *sorted(RECIPES.glob("papers/*.toml"))]
    parts = [f"## {file.relative_to(RECIPES).with_suffix('')}\n\n```toml\n{file.read_text()}```\n" for file in files]
    return "# Recipes\n\n`tellapart train NAME` trains one of these.\n\n" + "\n".join(parts)


def examples_page() -> str:
    """Every script of ``examples/`` as it is."""
    parts = [f"## {file.stem}\n\n```python\n{file.read_text()}```\n" for file in sorted(ROOT.glob("examples/*.py"))]
    return "# Examples\n\nShort scripts that run as they are.\n\n" + "\n".join(parts)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files of the repository lead to the page that shows them."""
    if page.file.src_uri in ("contributing.md", "changelog.md"):  # files of the repository's top
        markdown = markdown.replace("](docs/", "](")
    up = "../" * page.file.src_uri.count("/")
    return LINK.sub(lambda link: f"]({up}{target(link.group(1), link.group(2))})", markdown)


def target(top: str, rest: str) -> str:
    """The page of the site, with its anchor, for a file of the repository."""
    if top == "recipes":
        name = rest.strip("/").removesuffix(".toml")
        return f"reference/recipes.md{'#' + name.replace('/', '') if name else ''}"
    if top == "src/tellapart":
        folder, _, module = rest.strip("/").removesuffix(".py").partition("/")
        if not module or not (PACKAGE / folder / f"{module}.py").is_file():
            return "reference/index.md" if folder in ("", "types", "errors") else f"reference/{folder}.md"
        return f"reference/{folder}.md#tellapart.{folder}.{module.replace('/', '.')}"
    if top == "examples":
        return f"reference/examples.md#{Path(rest).stem}"
    return {"README.md": "index.md"}.get(top, top.lower())


def dotted(file: Path) -> str:
    """The module's name."""
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
