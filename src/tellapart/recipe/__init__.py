"""Recipes: the model, data, training and evaluation of a run.

`schema` defines the tables of a recipe, `reading` turns TOML, `shipped_recipes` and `overrides` into a `Recipe` and
reports `mistakes`, and `presets` defines the objectives of ``tellapart finetune``. `paper_tables` defines the papers'
tables, and `table_plan` plans the commands that measure one. The shipped recipes are in `shipped/`.
"""
