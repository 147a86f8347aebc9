"""Checks before training, without loading a model: references, ground truth, trackers and user code."""

from __future__ import annotations

from itertools import islice

from tellapart.errors import UsageError
from tellapart.recipe.schema import Recipe
from tellapart.training.build import TrainingSetup
from tellapart.training.references import check_references
from tellapart.training.sources import open_specs
from tellapart.training.trackers import check_trackers
from tellapart.types import Item
from tellapart.utils.allowed_code import check_allowed, code_path


def check_setup(setup: TrainingSetup) -> None:
    """Raises `UsageError` if the recipe cannot run on this machine. Does not load any model."""
    recipe = setup.recipe
    check_trackers(recipe.training.trackers)
    check_code(recipe)
    recipe.objective.check()
    validation, select = recipe.data.validation, recipe.select
    if recipe.trains == "scorer":
        why = "validating a scorer retrieves pictures by their references"
        check_references(validated_items(recipe), validation, why)
    elif select in ("loss", "cider"):
        why = f"validation.select is '{select}', which requires references"
        check_references(validated_items(recipe), validation, why)
    for reward in recipe.objective.reward_options:
        if "references" in reward.needs():
            why = f"reward '{reward.kind}' compares captions with references"
            check_references(setup.train_data, recipe.data.train, why)
        elif reward.within is not None:
            why = f"'within' of reward '{reward.kind}' counts the references' words"
            check_references(setup.train_data, recipe.data.train, why)
        if "truth" in reward.needs() and (unknown := [item.id for item in setup.train_data if item.truth is None]):
            raise UsageError(
                f"{recipe.data.train}: there is no ground truth for {unknown[0]}, but reward '{reward.kind}' (an "
                "upper bound) requires it; use scenes"
            )


def validated_items(recipe: Recipe) -> list[Item]:
    """Returns the validation pictures, without reading them."""
    return list(islice(open_specs(recipe.data.validation), recipe.validation.limit))


def check_code(recipe: Recipe) -> None:
    """Raises `UsageError` if a model needs user code that is not allowed to run. Does not load the model."""
    captioner = recipe.captioner.name if recipe.captioner else None
    if captioner and (path := code_path(captioner.partition("?")[0], "captioner")) is not None:
        check_allowed(path, "captioner", f"recipe {recipe.name}: captioner.name")
    for key, name in recipe.scorers():
        if (path := code_path(name, "scorer")) is not None:
            check_allowed(path, "scorer", f"recipe {recipe.name}: {key}")
