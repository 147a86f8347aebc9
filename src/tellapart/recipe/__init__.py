"""Recipes: the model, data, training and evaluation of a run.

`schema` defines the tables of a recipe, `reading` turns TOML, `shipped_recipes` and `overrides` into a `Recipe` and
reports `mistakes`, and `presets` defines the objectives of ``tellapart finetune``. `paper_tables` defines the papers'
tables, and `table_plan` plans the commands that measure one. The shipped recipes are in `shipped/`.
"""

from __future__ import annotations

from tellapart.recipe.overrides import apply_override
from tellapart.recipe.reading import check_recipe, read_recipe, to_toml
from tellapart.recipe.schema import Recipe
from tellapart.recipe.shipped_recipes import find_recipe

__all__ = ["Recipe", "apply_override", "check_recipe", "find_recipe", "read_recipe", "to_toml"]
