"""Recipes by file or by name: a file of the user's, or one that ships with the package."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from tellapart.errors import UsageError, nearest

SHIPPED = Path(__file__).parent / "shipped"


def shipped() -> dict[str, Path]:
    """The recipes that ship with the package, by name: ``scenes_smile``, ``papers/smile_blip_coco``."""
    files = sorted(SHIPPED.glob("*.toml")) + sorted(SHIPPED.glob("papers/*.toml"))
    return {file.relative_to(SHIPPED).with_suffix("").as_posix(): file for file in files}


def absolute(name: str, folder: Path) -> str:
    """A recipe's name as an absolute path: the file in ``folder``, or else the shipped recipe of that name."""
    if not name.endswith(".toml"):
        return name
    file = (folder / name).resolve()
    return str(file if file.is_file() else shipped().get(name.removesuffix(".toml"), file))


def shipped_recipe(name: str) -> Path | None:
    """The shipped recipe of that name, with or without ``recipes/`` and ``.toml``; None where there is none."""
    return shipped().get(name.removesuffix(".toml").removeprefix("recipes/"))


def find_recipe(name: str | Path) -> Path:
    """The file behind ``name``: a path, or the name of a shipped recipe, with or without ``recipes/`` and ``.toml``.

    A file that is there comes first. A path to a file that is missing is returned as it is, so that reading it gives
    the error. Raises `UsageError` for a name without a suffix that no recipe has; it says the nearest name.
    """
    path = Path(name)
    if path.is_file():
        return path
    if (ours := shipped_recipe(str(name))) is not None:
        return ours
    if path.suffix or len(path.parts) > 1 or path.exists():
        return path
    raise UsageError(
        f"no recipe is called '{name}'; expected a TOML file or a name that 'tellapart recipes' lists"
        f"{nearest(str(name), shipped())}"
    )


def descriptions() -> Iterator[tuple[str, str]]:
    """Name and one line of description of every shipped recipe."""
    for name, file in shipped().items():
        yield name, tomllib.loads(file.read_text(encoding="utf-8")).get("about", "")
