"""From a recipe's ``[bags]`` to the sampler of its batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from tellapart.bags import multimodal, nearest_neighbours
from tellapart.bags.make import captions_of, text_features
from tellapart.bags.sampler import HardAndRandom, Sampler, WholeBags, curriculum, random_bags
from tellapart.errors import UsageError
from tellapart.messages import say
from tellapart.recipe_bags import Bags
from tellapart.scorers import load_scorer

COPY = 0.9999  # a cosine above this is a copy, which nothing could tell from the other


def sampler_of(stage: Any) -> Sampler:
    """The batches of ``training.batches = "bags"``. Raises `UsageError` before any training."""
    settings = stage.recipe.bags or Bags()
    batch_size, seed, n = stage.recipe.training.batch_size, stage.recipe.seed, len(stage.train_items)
    if settings.largest > n:
        raise UsageError(f"{n} training pictures, and bags of {settings.largest} need at least as many")
    if settings.kind == "random":
        return WholeBags(random_bags(n, settings.stages), batch_size, seed)
    wanted = max(settings.neighbours, settings.largest - 1)
    rows_NK = nearest_neighbours(features(stage, settings), wanted, max_cosine=settings.max_cosine or COPY).rows_NK
    if settings.hard is not None:
        return HardAndRandom(rows_NK, settings.hard, batch_size, seed)
    return WholeBags(curriculum(rows_NK, settings.stages, say), batch_size, seed)


def features(stage: Any, settings: Bags) -> np.ndarray:
    """What the training pictures are compared by: the scorer's features, joined with those of captions where wanted."""
    name = settings.scorer or stage.recipe.scorer.name
    scorer = load_scorer(stage.upstream(name), stage.device)
    image_ND = stage.store.features(stage.train_items, scorer.encoder)
    if settings.captions is None:
        return image_ND
    return multimodal(image_ND, text_features(scorer, captions_of(stage.train_items, settings.captions)))
