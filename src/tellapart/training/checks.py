"""Checks of a recipe before anything is loaded or trained: installed trackers, allowed code, references."""

from __future__ import annotations

from collections.abc import Sequence

from tellapart.errors import MissingExtra, UsageError, nearest
from tellapart.models.plugins import check_allowed, code_path
from tellapart.objectives.base import OBJECTIVES
from tellapart.recipe.schema import Recipe
from tellapart.training.setup import TrainingSetup


def check_setup(setup: TrainingSetup) -> None:
    """Raises `UsageError` where the recipe cannot run here. Loads no model."""
    recipe = setup.recipe
    check_trackers(recipe.training.trackers)
    check_code(recipe)
    if (check := OBJECTIVES.find(recipe.objective.kind).check) is not None:
        check(recipe.objective)
    if recipe.trains == "scorer":
        setup.check_validation_references("validation of a scorer finds pictures by their references")
    elif (select := recipe.validation.select) in ("loss", "cider"):
        setup.check_validation_references(f"validation.select is '{select}', which compares with references")
    for reward in recipe.objective.reward_options:
        if "references" in reward.needs():
            setup.check_references(f"reward '{reward.kind}' compares captions with references")
        if "truth" in reward.needs():
            setup.check_truth(f"reward '{reward.kind}' reads the exact truth, an upper bound")


def check_code(recipe: Recipe) -> None:
    """Before anything is loaded or trained: the models that are a user's own code are allowed to run."""
    captioner = recipe.captioner.name if recipe.captioner else None
    if captioner and (path := code_path(captioner.partition("?")[0], "captioner")) is not None:
        check_allowed(path, "captioner", f"recipe {recipe.name}: captioner.name")
    for key, name in recipe.scorers():
        if (path := code_path(name, "scorer")) is not None:
            check_allowed(path, "scorer", f"recipe {recipe.name}: {key}")


def check_trackers(names: Sequence[str]) -> None:
    """Before any training: a tracker that is unknown or not installed would be left out without a word."""
    from accelerate.tracking import get_available_trackers
    from accelerate.utils import LoggerType

    known = [str(kind.value) for kind in LoggerType if kind != LoggerType.ALL]
    installed = {str(kind.value) for kind in get_available_trackers()}
    for name in names:
        if name not in known:
            raise UsageError(f"training.trackers: unknown tracker '{name}'{nearest(name, known)}")
        if name not in installed:
            if name == "tensorboard":
                raise MissingExtra("tensorboard", "the tracker 'tensorboard'")
            raise UsageError(f"training.trackers: '{name}' is not installed; type: pip install {name}")
