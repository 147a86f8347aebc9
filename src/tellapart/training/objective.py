"""Builds a run's objective from the parts of the run that rewards and objectives may use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tellapart.errors import UsageError
from tellapart.features.nearest import Exclusions, Vectors, nearest_among
from tellapart.objectives.base import Objective, build_objective
from tellapart.recipe.reading import read_recipe
from tellapart.rewards.run_parts import RunParts
from tellapart.scorers import Scorer
from tellapart.training.build import TrainingSetup
from tellapart.training.sources import open_specs


def objective_of(setup: TrainingSetup) -> Objective[Any]:
    """Builds the objective that a run's recipe specifies."""
    return build_objective(setup.recipe.objective, run_parts(setup))


def run_parts(setup: TrainingSetup) -> RunParts:
    """Returns the parts of this run that the factories of objectives and rewards may use."""
    return RunParts(
        captioner=setup.learner,  # type: ignore[arg-type]  # objectives for scorers do not use it
        scorer=setup.scorer,
        train_items=setup.train_items,
        vision_learns=setup.vision_learns,
        load_scorer=setup.load_scorer,
        start=setup.start,
        train_features=partial(train_features, setup),
        trained_on=partial(trained_on, setup),
        train_visual=partial(train_visual, setup),
        nearest_train=partial(nearest_train, setup),
    )


def train_features(setup: TrainingSetup, scorer: Scorer) -> np.ndarray:
    """Returns this scorer's features_ND for the training pictures."""
    return np.asarray(setup.store.features(setup.train_items, scorer.encoder))


def trained_on(setup: TrainingSetup, name: str) -> np.ndarray:
    """Returns seen_N: whether the named scorer was trained on each training picture (by id), according to the recipe of
    the scorer's run.

    If the name is neither a recipe nor a run, the scorer's training data is unknown, so all values are False.
    """
    folder = Path(setup.upstream(name))
    run = next((place for place in (folder, folder.parent) if (place / "run.json").is_file()), None)
    if run is None:
        return np.zeros(len(setup.train_items), dtype=bool)
    learned = {item.id for item in open_specs(read_recipe(run / "recipe.toml").data.train)}
    return np.array([item.id in learned for item in setup.train_items])


def train_visual(setup: TrainingSetup) -> Callable[[np.ndarray], torch.Tensor]:
    """Returns a function that maps rows_B to the learner's visual input B×… on the device, without augmentation."""
    rows = setup.visual(setup.train_items)

    def seen(rows_B: np.ndarray) -> torch.Tensor:
        if setup.reads_pixels:
            return setup.pixels.tensor(rows[rows_B])
        return torch.from_numpy(np.ascontiguousarray(rows[rows_B])).to(setup.device)

    return seen


def nearest_train(setup: TrainingSetup, scorer: Scorer, count: int) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that maps rows_B to rows_BK, the K nearest training pictures by the scorer's features."""
    if len(setup.train_items) <= count:
        raise UsageError(
            f"nearest is {count}, but there are only {len(setup.train_items)} training pictures; lower nearest"
        )
    gallery = Vectors.of(train_features(setup, scorer))
    row_N = np.arange(len(gallery))

    def nearest(rows_B: np.ndarray) -> np.ndarray:
        return nearest_among(gallery.take(rows_B), gallery, count, Exclusions(rows_B, row_N)).rows_NK

    return nearest
