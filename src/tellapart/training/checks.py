"""Checks before training: references, trackers and user code."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import accelerate
import accelerate.tracking
import accelerate.utils

from tellapart.errors import MissingExtra, UsageError, nearest
from tellapart.models import ranks
from tellapart.objectives.base import Objective
from tellapart.recipe.schema import Recipe
from tellapart.training.build import TrainingSetup
from tellapart.training.references import check_references
from tellapart.training.sources import open_specs
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


def check_trackers(names: Sequence[str]) -> None:
    """Raises `UsageError` for an unknown tracker, or one that is not installed; accelerate would silently skip it."""
    known = [str(kind.value) for kind in accelerate.utils.LoggerType if kind != accelerate.utils.LoggerType.ALL]
    installed = {str(kind.value) for kind in accelerate.tracking.get_available_trackers()}
    for name in names:
        if name not in known:
            raise UsageError(f"training.trackers: unknown tracker '{name}'{nearest(name, known)}")
        if name not in installed:
            if name == "tensorboard":
                raise MissingExtra("tensorboard", "the tracker 'tensorboard'")
            raise UsageError(f"training.trackers: '{name}' is not installed; run: pip install {name}")


def check_ranks(objective: Objective[Any], kind: str) -> None:
    """Raises `UsageError` if there are several ranks and the objective cannot split a batch between them."""
    if ranks.count() > 1 and not getattr(objective, "shares_batch", False):
        raise UsageError(
            f"objective '{kind}' cannot run on {ranks.count()} ranks because it does not declare shares_batch; "
            "start a single process"
        )
