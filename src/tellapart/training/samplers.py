"""Builds a recipe's sampler and finds pictures that look alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence

import numpy as np

from tellapart.bags.multimodal import caption_features, item_captions, multimodal
from tellapart.bags.sampler import BagSampler, BatchRows, HardNegativeSampler, Sampler, curriculum, random_bags
from tellapart.errors import UsageError
from tellapart.features.all_neighbours import nearest_neighbours
from tellapart.features.nearest import COPY
from tellapart.features.store import FeatureStore
from tellapart.recipe.schema import Bags, Recipe
from tellapart.scorers import Scorer
from tellapart.types import Item
from tellapart.utils.blocks import blocks_of
from tellapart.utils.messages import say

ROWS_PER_HASH = 4096  # rows hashed at a time


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


def neighbours(settings: Bags, items: Sequence[Item], store: FeatureStore, scorer: Scorer) -> np.ndarray:
    """Finds each picture's nearest neighbours by the scorer's features for pictures, or for pictures and captions.

    Returns row indices N×K. The feature store caches the result under a hash of the inputs, so a resumed run, or
    another run on the same pictures, does not repeat the search.
    """
    count, max_cosine = max(settings.neighbours, settings.largest - 1), settings.max_cosine or COPY
    image_ND = np.asarray(store.features(items, scorer.encoder))
    captions = None if settings.captions is None else item_captions(items, settings.captions)

    def searched() -> np.ndarray:
        joined_ND = image_ND if captions is None else multimodal(image_ND, caption_features(scorer, captions))
        rows_NK: np.ndarray = nearest_neighbours(joined_ND, count, max_cosine=max_cosine).rows_NK
        return rows_NK

    what = f"nearest neighbours: {count} for each of {len(image_ND):,} pictures, cosine at most {max_cosine:g}"
    rows_NK: np.ndarray = store.cached(f"{what} {fingerprint(image_ND, captions, scorer.fingerprint)}", searched)
    return rows_NK


def fingerprint(image_ND: np.ndarray, captions: Sequence[Sequence[str]] | None, scorer: str) -> str:
    """Hashes the features and, if captions are used, the captions and the scorer that encodes them."""
    digest = hashlib.blake2b(f"{image_ND.shape} {image_ND.dtype}".encode(), digest_size=10)
    for rows_BD in blocks_of(image_ND, ROWS_PER_HASH):
        digest.update(np.ascontiguousarray(rows_BD).data)
    if captions is not None:
        digest.update(json.dumps([scorer, captions]).encode())
    return digest.hexdigest()


class ShuffleSampler:
    """Shuffles all n pictures once per epoch and drops the incomplete last batch."""

    def __init__(self, n: int, batch_size: int, seed: int) -> None:
        self.n, self.batch_size, self.seed = n, min(batch_size, n), seed
        self._epoch, self._order_N = -1, np.empty(0, dtype=np.int64)

    def __call__(self, step: int) -> BatchRows:
        epoch, place = divmod(step, self.n // self.batch_size)
        if epoch != self._epoch:
            self._epoch, self._order_N = epoch, np.random.default_rng([self.seed, epoch]).permutation(self.n)
        return BatchRows(np.sort(self._order_N[place * self.batch_size : (place + 1) * self.batch_size]))
