"""Finds the training pictures that look alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from tellapart.bags.multimodal import caption_features, item_captions, multimodal
from tellapart.features.all_neighbours import nearest_neighbours
from tellapart.features.nearest import COPY
from tellapart.features.store import FeatureStore
from tellapart.recipe.schema import Bags
from tellapart.scorers import Scorer
from tellapart.types import Item
from tellapart.utils.blocks import blocks_of

ROWS_PER_HASH = 4096  # rows hashed at a time


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
