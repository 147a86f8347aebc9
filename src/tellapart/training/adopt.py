"""Runs that take the place of recipes which are named as models (``tellapart train --adopt RUN``).

A run of an older recipe, of other data or of an older program has another fingerprint than the recipe has today, which
is then trained anew. Who wants that run all the same adopts it: its folder stands where the recipe of its name stood,
here and in the recipes that these name, and the fingerprint is then of its weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tellapart.errors import UsageError
from tellapart.recipe.reading import check_recipe, read_recipe
from tellapart.recipe.schema import Recipe
from tellapart.training.run_folder import Run


def adopt(recipe: Recipe, adopted: Mapping[str, Path]) -> Recipe:
    """The recipe with the run's folder in place of each recipe that it names whose run is adopted (name to folder)."""
    if not adopted:
        return recipe
    return check_recipe(recipe.dump(Places(adopted), mode="json", exclude_none=True), recipe.name)


def adoptions(folders: Sequence[Path], recipe: Recipe) -> dict[str, Path]:
    """The runs to adopt by name. Raises `UsageError` for what is no trained run, two of one name, and one of a name
    that neither this recipe nor those that it names have as a model."""
    adopted: dict[str, Path] = {}
    for folder in folders:
        run = Run(folder, recipe)
        if not run.trained or not run.info.get("name"):
            raise UsageError(f"--adopt {folder}: not a trained run; expected a folder such as runs/NAME-FINGERPRINT")
        name = str(run.info["name"])
        if name in adopted:
            raise UsageError(f"--adopt {folder}: {adopted[name]} is a run of {name}, too; leave one of them out")
        adopted[name] = folder
    known = named_recipes(recipe)
    for name, folder in adopted.items():
        if name not in known:
            others = f"it names {', '.join(sorted(known))}" if known else "it names no other recipe"
            raise UsageError(f"--adopt {folder}: {recipe.name} names no recipe '{name}' as a model; {others}")
    return adopted


def named_recipes(recipe: Recipe, known: dict[str, None] | None = None) -> dict[str, None]:
    """The names of the recipes that this one names as models, and of those that they name."""
    known, found = {} if known is None else known, Places({})
    recipe.dump(found)
    for path in found.recipes:
        other = read_recipe(Path(path))
        if other.name not in known:  # recipes that name each other end here
            known[other.name] = None
            named_recipes(other, known)
    return known


class Places:
    """Where models lie (a `utils.options.Resolver`): recipes stand for their adopted runs, all else for itself."""

    def __init__(self, adopted: Mapping[str, Path]) -> None:
        self.adopted, self.recipes = adopted, list[str]()

    def model(self, name: str) -> str:
        if not name.endswith(".toml"):
            return name
        self.recipes.append(name)
        return str(self.adopted[called]) if (called := read_recipe(Path(name)).name) in self.adopted else name

    def data(self, spec: str) -> str:
        return spec

    def file(self, path: str) -> str:
        return path
