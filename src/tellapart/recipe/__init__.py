"""Recipes: what to train, on what, how, and how to measure it.

`schema` has the tables of a recipe, `reading` turns TOML, shipped names, overrides and old names into a `Recipe`, and
`presets` has the objectives of ``tellapart finetune``. The shipped recipes are in `shipped/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tellapart.utils.registry import lazily

if TYPE_CHECKING:
    from tellapart.recipe.reading import apply_override as apply_override
    from tellapart.recipe.reading import check_recipe as check_recipe
    from tellapart.recipe.reading import find_recipe as find_recipe
    from tellapart.recipe.reading import read_recipe as read_recipe
    from tellapart.recipe.reading import to_toml as to_toml
    from tellapart.recipe.schema import Recipe as Recipe

_WHERE = {
    "Recipe": "schema",
    "apply_override": "reading",
    "check_recipe": "reading",
    "find_recipe": "reading",
    "read_recipe": "reading",
    "to_toml": "reading",
}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE)
