"""Recipes: what to train, on what, how, and how to measure it.

`schema` is the recipe as a whole; `models`, `objectives` and `bags` are its larger tables. `reading` turns TOML into
a `Recipe` and back, `overrides` applies ``--set``, `deprecated` maps old names to today's, `error_messages` words what
is wrong with a table, `find` finds the shipped recipes in `shipped/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tellapart.utils.lazy import lazily

if TYPE_CHECKING:
    from tellapart.recipe.find import find_recipe as find_recipe
    from tellapart.recipe.overrides import apply_override as apply_override
    from tellapart.recipe.reading import check_recipe as check_recipe
    from tellapart.recipe.reading import read_recipe as read_recipe
    from tellapart.recipe.reading import to_toml as to_toml
    from tellapart.recipe.schema import Recipe as Recipe

_WHERE = {
    "Recipe": "schema",
    "apply_override": "overrides",
    "check_recipe": "reading",
    "find_recipe": "find",
    "read_recipe": "reading",
    "to_toml": "reading",
}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE)
