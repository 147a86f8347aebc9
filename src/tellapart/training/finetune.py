"""Trains a planned recipe, writes a model card, and uploads the model and the card."""

from __future__ import annotations

from pathlib import Path

from tellapart.models import ranks
from tellapart.recipe.schema import Recipe
from tellapart.training.hub import check_hub, push_folder
from tellapart.training.model_card import CARD, model_card
from tellapart.training.run_files import write_text
from tellapart.training.run_folder import Run
from tellapart.training.runs import train
from tellapart.training.sources import open_specs
from tellapart.utils.messages import say


def plan_summary(recipe: Recipe, out: Path) -> str:
    """Returns one line that names the model, the data and the length of training."""
    specs = (recipe.data.train, recipe.data.validation, recipe.data.test or ())
    train, validation, test = (len(open_specs(each)) for each in specs)
    steps, batch = recipe.training.steps, recipe.training.batch_size
    return (
        f"{recipe.about.partition(', settings')[0]}: {train:,} training, {validation:,} validation and {test:,} "
        f"test pictures; {steps:,} steps of {batch:,} pictures; settings: {out / 'recipe.toml'}"
    )


def run_finetune(
    recipe: Recipe, out: Path, *, hub_id: str | None = None, private: bool = False, overwrite: bool = False
) -> Run:
    """Trains the recipe in the folder ``out`` and writes a model card.

    If ``out`` already contains a run of this recipe, resumes this run, or extends it to more steps.

    hub_id: the repository to which the model and the card are uploaded.
    overwrite: whether to remove an existing run.
    """
    repository = None if hub_id is None else check_hub(hub_id)
    run = train(recipe, out, resume=True, overwrite=overwrite, extend=True, summary=plan_summary(recipe, out))
    if not ranks.is_main():
        return run
    model = run.folder / "model"
    write_text(model / CARD, model_card(run, repository))
    if repository is not None:
        say(f"pushed to {push_folder(model, repository, private=private)}")
    return run
