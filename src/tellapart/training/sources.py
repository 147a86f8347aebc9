"""The inputs to a run: its recipe, the models that it names, and its data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property

import torch

from tellapart.data import open_many
from tellapart.data.blip_references import blip_cleaned
from tellapart.data.dataset import Changed, Dataset
from tellapart.features.store import FeatureStore
from tellapart.models.devices import best_device
from tellapart.recipe.schema import Recipe


@dataclass(eq=False)
class RunSources:
    """The inputs to a run: its recipe, the models that it names, a device, a feature store, and the data.

    upstream: function that maps a model's name in the recipe to a path or name, and trains the model first if
        necessary.
    """

    recipe: Recipe
    upstream: Callable[[str], str]
    device: torch.device = field(default_factory=best_device)
    store: FeatureStore = field(default_factory=FeatureStore)

    def __post_init__(self) -> None:
        self.upstream = cache(self.upstream)

    @cached_property
    def train_data(self) -> Dataset:
        """The training data that the recipe names, including unreadable pictures."""
        dataset = open_specs(self.recipe.data.train)
        if self.recipe.data.clean == "none":
            return dataset
        return Dataset(dataset.spec, Changed(dataset, blip_cleaned), dataset.missing)


def open_specs(specs: str | tuple[str, ...]) -> Dataset:
    """Opens one data set, or the concatenation of several."""
    return open_many(spec_list(specs))


def spec_list(specs: str | tuple[str, ...]) -> tuple[str, ...]:
    return (specs,) if isinstance(specs, str) else specs
