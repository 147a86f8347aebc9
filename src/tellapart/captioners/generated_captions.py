"""Generates captions for pictures in batches, and selects the consensus of several samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tellapart.captioners.consensus import consensus
from tellapart.captioners.doubtful_nouns import confident_texts
from tellapart.models.decoding import Decoding
from tellapart.models.training_mode import in_mode
from tellapart.types import Rows
from tellapart.utils.blocks import blocks_of
from tellapart.utils.rng import ItemSeeds

SAMPLES_AT_ONCE = 1024  # maximum number of captions per batch


def generate_captions(
    captioner: Any,
    visual: torch.Tensor | Rows,
    decoding: Decoding,
    batch_size: int = 100,
    seeds: ItemSeeds | None = None,
) -> list[str]:
    """Generates captions for N pictures from their features N×… with a `Captioner`, without dropout.

    Captions contain no gaps (`without_gaps`). If ``decoding.confidence`` is set, removes words that the captioner is
    not confident about (`confident_texts`) before it computes the consensus.

    ``seeds``: one seed per picture, which determines the picture's samples.
    """
    if decoding.asks_scorer:
        raise ValueError("a scorer selects among these captions; call inference.best_of.chosen_captions")
    batch_size = max(1, min(batch_size, SAMPLES_AT_ONCE // decoding.drawn.samples))
    texts: list[str] = []
    captioner.cut = set()
    with in_mode(captioner.model, False), without_gaps(captioner):
        for start in range(0, len(visual), batch_size):
            block = captioner.inputs(torch.as_tensor(visual[start : start + batch_size]))
            of_block = None if seeds is None else seeds[start : start + batch_size]
            rollout = captioner.generate(block, decoding.drawn, of_block)
            least = decoding.confidence
            written = confident_texts(captioner, block, rollout, least) if least else rollout.texts
            stopped = captioner.stopped(rollout).tolist()
            captioner.cut |= {" ".join(text.split()) for text, ends in zip(written, stopped, strict=True) if not ends}
            consents = decoding.kind == "consensus"
            texts += map(consensus, blocks_of(written, decoding.candidates)) if consents else written
    return texts


@contextmanager
def without_gaps(captioner: Any) -> Iterator[None]:
    """Suppresses the unknown token of a whole-word vocabulary, which would leave a gap in a caption ("a man with a").

    Objectives do not use this context when they sample, because their log-probabilities cover the whole vocabulary.
    """
    before, words = captioner.gaps, getattr(getattr(captioner.tokenizer, "backend_tokenizer", None), "model", None)
    captioner.gaps = (captioner.tokenizer.unk_token_id,) if type(words).__name__ == "WordLevel" else ()
    try:
        yield
    finally:
        captioner.gaps = before
