"""From a recipe to the sampler of its batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tellapart.bags import multimodal, nearest_neighbours
from tellapart.bags.mine import caption_features, item_captions
from tellapart.bags.sampler import BagSampler, HardNegativeSampler, Sampler, curriculum, random_bags
from tellapart.errors import UsageError
from tellapart.features.nearest import COPY
from tellapart.features.store import FeatureStore
from tellapart.recipe.bags import Bags
from tellapart.recipe.schema import Recipe
from tellapart.scorers import load_scorer
from tellapart.training.batches import ShuffleSampler
from tellapart.types import Item
from tellapart.utils.messages import say

if TYPE_CHECKING:
    import torch

BLOCK = 4096  # rows hashed at a time


class SamplerParts(Protocol):
    """What samplers need of a `TrainingSetup`."""

    recipe: Recipe
    upstream: Callable[[str], str]

    @property
    def device(self) -> torch.device: ...
    @property
    def store(self) -> FeatureStore: ...
    @property
    def train_items(self) -> list[Item]: ...


def sampler_of(parts: SamplerParts) -> Sampler:
    """The batches that ``training.batches`` asks for. Raises `UsageError` before any training."""
    settings, seed, n = parts.recipe.training, parts.recipe.seed, len(parts.train_items)
    if settings.batches == "bags":
        return bags_of(parts)
    if settings.batches == "families":
        together = [np.asarray(places) for places in families(parts.train_items)]
        return BagSampler(lambda epoch: together, settings.batch_size, seed)
    return ShuffleSampler(n, settings.batch_size, seed)


def families(items: Sequence[Item]) -> list[list[int]]:
    """The places of the look-alikes that come together in `scenes`. Raises `UsageError` for other pictures."""
    together: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        if item.truth is None:
            raise UsageError(f"training.batches = 'families' is for scenes:, and {item.id} is none; leave it out")
        together.setdefault(item.truth.look_alikes, []).append(place)
    return list(together.values())


def bags_of(parts: SamplerParts) -> Sampler:
    """The batches of look-alikes that ``[bags]`` describes."""
    settings = parts.recipe.bags or Bags()
    batch_size, seed, n = parts.recipe.training.batch_size, parts.recipe.seed, len(parts.train_items)
    if settings.largest > n:
        raise UsageError(f"{n} training pictures, and bags of {settings.largest} need at least as many")
    if settings.kind == "random":
        return BagSampler(random_bags(n, settings.stages), batch_size, seed)
    wanted = max(settings.neighbours, settings.largest - 1)
    rows_NK = neighbours(parts, settings, wanted)
    if settings.hard is not None:
        return HardNegativeSampler(ShuffleSampler(n, batch_size, seed), rows_NK, settings.hard, batch_size)
    return BagSampler(curriculum(rows_NK, settings.stages, say), batch_size, seed)


def neighbours(parts: SamplerParts, settings: Bags, wanted: int) -> np.ndarray:
    """Each training picture's nearest by the scorer's features, joined with those of captions where wanted.

    They are kept in the feature store, under a hash of all that they depend on: a run that goes on, and another one
    on the same pictures, encodes no text and searches nothing.
    """
    name = settings.scorer or (parts.recipe.scorer.name if parts.recipe.scorer else None)
    assert name is not None, "the recipe's schema asks for it"
    scorer = load_scorer(parts.upstream(name), parts.device)
    image_ND = np.asarray(parts.store.features(parts.train_items, scorer.encoder))
    captions = None if settings.captions is None else item_captions(parts.train_items, settings.captions)
    max_cosine = settings.max_cosine or COPY

    def searched() -> np.ndarray:
        joined_ND = image_ND if captions is None else multimodal(image_ND, caption_features(scorer, captions))
        rows_NK: np.ndarray = nearest_neighbours(joined_ND, wanted, max_cosine=max_cosine).rows_NK
        return rows_NK

    what = f"neighbours, {wanted} of each of {len(image_ND):,} pictures, no nearer than {max_cosine:g}"
    rows_NK: np.ndarray = parts.store.cached(f"{what} {fingerprint(image_ND, captions, scorer.fingerprint)}", searched)
    return rows_NK


def fingerprint(image_ND: np.ndarray, captions: Sequence[Sequence[str]] | None, scorer: str) -> str:
    """Of the features and, where captions count, of these and of the scorer that reads them."""
    digest = hashlib.blake2b(f"{image_ND.shape} {image_ND.dtype}".encode(), digest_size=10)
    for start in range(0, len(image_ND), BLOCK):
        digest.update(np.ascontiguousarray(image_ND[start : start + BLOCK]).data)
    if captions is not None:
        digest.update(json.dumps([scorer, captions]).encode())
    return digest.hexdigest()
