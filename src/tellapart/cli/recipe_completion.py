"""Completes the recipe that is being typed in the shell."""

from __future__ import annotations

from pathlib import Path

from tellapart.recipe.shipped_recipes import shipped


def recipe_names(incomplete: str) -> list[str]:
    """Completes the names of included recipes, TOML files and folders in the shell."""
    folder, begun = Path(incomplete).parent if "/" in incomplete else Path(), incomplete.rpartition("/")[2]
    found = sorted(folder.glob(f"{begun}*")) if folder.is_dir() else []
    files = [f"{each}/" if each.is_dir() else str(each) for each in found if each.is_dir() or each.suffix == ".toml"]
    return [name for name in shipped() if name.startswith(incomplete)] + files
