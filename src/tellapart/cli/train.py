"""``tellapart train``: trains a model from a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.app import TRAINING, App
from tellapart.cli.launch import Nproc, in_processes
from tellapart.cli.options import Device, Json, Overwrite, RecipePrecision, Settings, precision_settings
from tellapart.cli.recipe_completion import recipe_names
from tellapart.cli.run_results import show_run

app = App()


@app.command(rich_help_panel=TRAINING)
def train(
    recipe: Annotated[str, typer.Argument(autocompletion=recipe_names)],
    settings: Settings = None,
    out: Path | None = None,
    resume: bool = False,
    overwrite: Overwrite = False,
    adopt: Annotated[list[Path] | None, typer.Option(metavar="RUN")] = None,
    device: Device = "auto",
    precision: RecipePrecision = "auto",
    nproc: Nproc = None,
    as_json: Json = False,
) -> None:
    """Train a model from a recipe, evaluate it before and after, and write a report.

    Args:
        recipe: Recipe: a TOML file, or a name listed by 'tellapart recipes'.
        out: Run folder. Default: runs/NAME-FINGERPRINT.
        resume: Continue from the last checkpoint.
        adopt: Run to reuse for a recipe that RECIPE depends on, even if that recipe has changed. Repeatable.
    """
    from tellapart.models import devices, ranks
    from tellapart.recipe.reading import read_recipe
    from tellapart.recipe.shipped_recipes import find_recipe
    from tellapart.training import adoption, runs

    with devices.running_on(device):
        in_processes(nproc)
        ranks.start()
        config = read_recipe(find_recipe(recipe), [*(settings or []), *precision_settings(precision)])
        adopted = adoption.adoptions(adopt or [], config)
        run = runs.train(config, out, resume=resume, overwrite=overwrite, adopted=adopted)
    if ranks.is_main():
        show_run(run.folder, as_json)
