"""``tellapart recipes``: lists the recipes included in the package, or prints one."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from tellapart.cli.app import TRAINING, App
from tellapart.cli.options import Json
from tellapart.cli.output import show
from tellapart.cli.recipe_completion import recipe_names
from tellapart.errors import UsageError, nearest
from tellapart.recipe.shipped_recipes import descriptions, shipped, shipped_recipe
from tellapart.utils.write_errors import stdout_errors

app = App(name="recipes", help="List the included recipes, or print one.")


@app.callback(invoke_without_command=True, rich_help_panel=TRAINING)
def list_recipes(ctx: typer.Context, as_json: Json = False) -> None:
    """List the recipes; 'tellapart recipes show NAME' prints one."""
    if ctx.invoked_subcommand is not None:
        return
    rows = list(descriptions())
    show({"recipes": [{"name": name, "about": about} for name, about in rows]}, lambda: _table(rows), as_json)


def _table(rows: list[tuple[str, str]]) -> Table:

    table = Table("recipe", "description", caption="tellapart train RECIPE", caption_justify="left")
    for row in rows:
        table.add_row(*row)
    return table


@app.command("show")
def show_recipe(
    name: Annotated[str, typer.Argument(autocompletion=recipe_names)],
) -> None:
    """Print a recipe to copy and edit: tellapart recipes show scenes_smile > mine.toml.

    Args:
        name: Name of a recipe, such as scenes_smile.
    """
    if (file := shipped_recipe(name)) is None:
        raise UsageError(
            f"no included recipe is named '{name}'; run tellapart recipes to list their names{nearest(name, shipped())}"
        )
    with stdout_errors():
        print(file.read_text(encoding="utf-8"), end="")
