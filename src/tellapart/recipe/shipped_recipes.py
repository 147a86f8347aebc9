"""Finds the recipes that ship with the package."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tellapart.errors import UsageError, nearest

SHIPPED = Path(__file__).parent / "shipped"


@cache
def shipped() -> dict[str, Path]:
    """Returns the recipes that ship with the package, by name: ``scenes_smile``, ``papers/smile_blip_coco``."""
    files = sorted(SHIPPED.glob("*.toml")) + sorted(SHIPPED.glob("papers/*.toml"))
    return {file.relative_to(SHIPPED).with_suffix("").as_posix(): file for file in files}


def absolute(name: str, folder: Path) -> str:
    """Returns the absolute path for a recipe's name: the file in ``folder`` or, if there is none, the shipped recipe.

    Returns names that do not end in ``.toml`` unchanged.
    """
    if not name.endswith(".toml"):
        return name
    file = (folder / name).resolve()
    return str(file if file.is_file() else shipped().get(name.removesuffix(".toml"), file))


def shipped_recipe(name: str) -> Path | None:
    """Returns the file of the shipped recipe with this name, or None if there is no such recipe.

    The name may include ``recipes/`` and ``.toml``.
    """
    return shipped().get(name.removesuffix(".toml").removeprefix("recipes/"))


def find_recipe(name: str | Path) -> Path:
    """Returns the file for ``name``: a path, or the name of a shipped recipe (``recipes/`` and ``.toml`` are optional).

    Existing files take precedence. A path to a missing file is returned unchanged, so that reading the file raises the
    error. Raises `UsageError`, with the nearest known name, if the name is unknown.
    """
    path = Path(name)
    if path.is_file():
        return path
    if (ours := shipped_recipe(str(name))) is not None:
        return ours
    if path.suffix or len(path.parts) > 1 or path.exists():
        return path
    raise UsageError(
        f"unknown recipe '{name}'; expected a TOML file or a name that 'tellapart recipes' "
        f"lists{nearest(str(name), shipped())}"
    )


def descriptions() -> Iterator[tuple[str, str]]:
    """Yields the name and a one-line description of every shipped recipe."""
    for name, file in shipped().items():
        yield name, tomllib.loads(file.read_text(encoding="utf-8")).get("about", "")
