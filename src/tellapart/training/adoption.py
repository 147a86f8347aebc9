"""Adopts existing runs as the models that a recipe names, instead of training its upstream recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from tellapart.errors import UsageError
from tellapart.recipe.reading import check_recipe, read_recipe
from tellapart.recipe.schema import Recipe
from tellapart.training.run_folder import Run


def adopt(recipe: Recipe, adopted: Mapping[str, Path]) -> Recipe:
    """Replaces recipes that ``recipe`` names as models with the folders of their adopted runs. Returns the result."""
    if not adopted:
        return recipe
    return check_recipe(recipe.dump(AdoptedRuns(adopted), mode="json", exclude_none=True), recipe.name)


def adoptions(folders: Sequence[Path], recipe: Recipe) -> dict[str, Path]:
    """Returns the runs to adopt, by name.

    Raises `UsageError` for a folder without a trained run, for two runs with the same name, and for a run whose recipe
    is not used as a model, directly or indirectly.
    """
    adopted: dict[str, Path] = {}
    for folder in folders:
        run = Run(folder, recipe)
        if not run.trained or not run.info.get("name"):
            raise UsageError(f"--adopt {folder} is not a trained run; expected a folder such as runs/NAME-FINGERPRINT")
        name = str(run.info["name"])
        if name in adopted:
            raise UsageError(f"--adopt {folder}: {adopted[name]} is also a run of {name}; remove one of them")
        adopted[name] = folder
    known = named_recipes(recipe)
    for name, folder in adopted.items():
        if name not in known:
            others = f"it uses {', '.join(sorted(known))}" if known else "it uses no other recipe"
            raise UsageError(f"--adopt {folder}: {recipe.name} does not use a recipe '{name}' as a model; {others}")
    return adopted


def named_recipes(recipe: Recipe, known: dict[str, None] | None = None) -> dict[str, None]:
    """Returns the names of the recipes that ``recipe`` uses as models, directly or indirectly."""
    known = {} if known is None else known
    for path in recipes_in(recipe):
        other = read_recipe(Path(path))
        if other.name not in known:  # recipes that name each other would otherwise recurse forever
            known[other.name] = None
            named_recipes(other, known)
    return known


def recipes_in(recipe: Recipe, exclude: Set[str] | None = None) -> list[str]:
    """Returns the files of the recipes that ``recipe`` names as models. ``exclude``: tables to ignore."""
    resolver = AdoptedRuns({})
    recipe.dump(resolver, exclude=exclude)
    return resolver.recipes


class AdoptedRuns:
    """Resolves recipes to their adopted runs. Leaves all other names unchanged (a `utils.recipe_names.Resolver`).

    recipes: the recipes that have been resolved so far, whether or not a run of them is adopted.
    """

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
