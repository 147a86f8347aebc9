"""Joins the features of pictures with those of their captions (paper 2, algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tellapart.data.caption_alignment import align_lists
from tellapart.data.caption_files import read_caption_file
from tellapart.data.caption_matching import KnownIds, match_captions
from tellapart.errors import UsageError
from tellapart.scorers.base import Scorer
from tellapart.types import Item


def multimodal(features_ND: np.ndarray, texts_ND: np.ndarray | Sequence[np.ndarray]) -> np.ndarray:
    """Concatenates picture features and mean caption features (paper 2, algorithm 1, lines 4 to 8): N×2D float32.

    features_ND: normalized features of the pictures.
    texts_ND: normalized features of the captions: N×D, or one M×D for each picture's M captions.
    Raises `UsageError` if the numbers of texts and pictures differ or a picture has no caption.
    """
    features_ND = np.asarray(features_ND, dtype=np.float32)
    if len(texts_ND) != len(features_ND):
        raise UsageError(f"expected captions for {len(features_ND)} pictures, got {len(texts_ND)}")
    without = [row for row, text in enumerate(texts_ND) if np.size(text) == 0]
    if without:
        raise UsageError(
            f"{len(without)} pictures have no caption (first: row {without[0]}); add at least one for each"
        )
    mean_ND = np.stack([np.mean(np.atleast_2d(text), axis=0) for text in texts_ND]).astype(np.float32)
    return np.concatenate([features_ND, mean_ND], axis=1)


def item_captions(items: Sequence[Item], captions: str) -> list[list[str]]:
    """Returns each picture's captions, from its references or a file. Raises `UsageError` if there are none."""
    if captions != "references":
        known = KnownIds.of_files("the data", items)
        matched = match_captions(read_caption_file(captions), known, captions)
        kept, _ = align_lists(matched.texts, known.ids, True, name=captions)
        if bare := [item.id for item in items if item.id not in kept]:
            raise UsageError(f"{captions}: {len(bare)} of {len(items)} pictures have no caption (first: {bare[0]})")
        return [kept[item.id] for item in items]
    if bare := [item.id for item in items if not item.references]:
        mend = "specify a caption file instead of 'references'"
        raise UsageError(f"{len(bare)} of {len(items)} pictures have no reference (first: {bare[0]}); {mend}")
    return [list(item.references) for item in items]


def caption_features(scorer: Scorer, captions: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """Computes the features M×D of each picture's M captions."""
    flat_MD = scorer.text_features([text for texts in captions for text in texts]).cpu().numpy()
    return np.split(flat_MD, np.cumsum([len(texts) for texts in captions])[:-1])
