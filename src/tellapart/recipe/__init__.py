"""Recipes: the model, data, training and evaluation of a run.

`schema` defines the tables in a recipe. `reading` reads a `Recipe` from TOML, finds `shipped_recipes`, applies
`overrides`, and reports `mistakes`. `presets` defines the objectives of ``tellapart finetune``. `paper_tables` defines
the papers' tables, `table_plan` plans the commands that reproduce a table, and `table_figures` reads their results.
The shipped recipes are in `shipped/`.
"""
