"""Recipes: the model, data, training and evaluation of a run.

`schema` defines the tables in a recipe. `reading` reads a `Recipe` from TOML, finds `shipped_recipes`, applies
`overrides`, and reports `mistakes`. `presets` defines the objectives of ``tellapart finetune``. `paper_tables` defines
the papers' tables, and `table_plan` plans the commands that reproduce a table. The shipped recipes are in `shipped/`.
"""
