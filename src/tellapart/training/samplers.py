"""Builds a recipe's sampler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tellapart.bags.sampler import BagSampler, HardNegativeSampler, Sampler, ShuffleSampler, curriculum, random_bags
from tellapart.errors import UsageError
from tellapart.features.store import FeatureStore
from tellapart.recipe.schema import Bags, Recipe
from tellapart.scorers import Scorer
from tellapart.training.look_alikes import neighbours
from tellapart.types import Item
from tellapart.utils.messages import say


def sampler_of(recipe: Recipe, items: Sequence[Item], store: FeatureStore, load: Callable[[str], Scorer]) -> Sampler:
    """Builds the sampler that ``training.batches`` names. Raises `UsageError` if the pictures do not support it.

    load: loads a scorer by its name in the recipe. The scorer's features determine which pictures look alike.
    """
    settings = recipe.training
    if settings.batches == "bags":
        return bags_of(recipe, items, store, load)
    if settings.batches == "families":
        together = [np.asarray(places) for places in families(items)]
        return BagSampler(lambda epoch: together, settings.batch_size, recipe.seed)
    return ShuffleSampler(len(items), settings.batch_size, recipe.seed)


def families(items: Sequence[Item]) -> list[list[int]]:
    """Groups the indices of look-alikes that `scenes` generated together.

    Raises `UsageError` for a picture that `scenes` did not generate.
    """
    together: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        if item.truth is None:
            raise UsageError(
                f"training.batches = 'families' requires data from scenes:, but {item.id} is not a scene; remove "
                "training.batches or that data"
            )
        together.setdefault(item.truth.look_alikes, []).append(place)
    return list(together.values())


def bags_of(recipe: Recipe, items: Sequence[Item], store: FeatureStore, load: Callable[[str], Scorer]) -> Sampler:
    """Builds the look-alike sampler that ``[bags]`` describes. ``load``: see `sampler_of`."""
    settings, batch_size, n = recipe.bags or Bags(), recipe.training.batch_size, len(items)
    if settings.largest > n:
        raise UsageError(f"bags of {settings.largest} pictures require at least as many training pictures; got {n}")
    if settings.kind == "random":
        return BagSampler(random_bags(n, settings.stages), batch_size, recipe.seed)
    name = settings.scorer or (recipe.scorer.name if recipe.scorer else None)
    assert name is not None, "[bags] is required; unreachable, because the recipe's schema checks this"
    rows_NK = neighbours(settings, items, store, load(name))
    if settings.hard is not None:
        return HardNegativeSampler(ShuffleSampler(n, batch_size, recipe.seed), rows_NK, settings.hard, batch_size)
    return BagSampler(curriculum(rows_NK, settings.stages, say), batch_size, recipe.seed)
