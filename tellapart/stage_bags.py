"""From a recipe's ``[bags]`` to the sampler of its batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tellapart.bags import multimodal, nearest_neighbours
from tellapart.bags.sampler import HardAndRandom, Sampler, WholeBags, curriculum, random_bags
from tellapart.captions_file import align_lists, read_caption_lists
from tellapart.errors import UsageError
from tellapart.messages import say
from tellapart.recipe_bags import Bags
from tellapart.scorers import load_scorer
from tellapart.types import Item

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


def captions_of(items: list[Item], captions: str) -> list[list[str]]:
    """The captions of each picture: its references, or those of a file. Raises `UsageError` where one has none."""
    if captions != "references":
        kept, _ = align_lists(read_caption_lists(Path(captions)), [item.id for item in items], name=captions)
        return list(kept.values())
    if bare := [item.id for item in items if not item.references]:
        raise UsageError(f"{len(bare)} of {len(items)} pictures have no reference, such as {bare[0]}; name a file")
    return [list(item.references) for item in items]


def text_features(scorer: Any, captions: list[list[str]]) -> list[np.ndarray]:
    """Features M×D of the M captions of each picture."""
    flat_MD = scorer.text_features([text for texts in captions for text in texts]).cpu().numpy()
    return np.split(flat_MD, np.cumsum([len(texts) for texts in captions])[:-1])
