"""Captions of pictures as texts: batches of samples, and a consensus among them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tellapart.captioners.consensus import confident_texts, consensus
from tellapart.models.decoding import Decoding
from tellapart.types import Rows, in_mode
from tellapart.utils.rng import ItemSeeds

SAMPLES_AT_ONCE = 1024  # rows of a batch


def generate_captions(
    captioner: Any,
    visual: torch.Tensor | Rows,
    decoding: Decoding,
    batch_size: int = 100,
    seeds: ItemSeeds | None = None,
) -> list[str]:
    """Generates captions of N pictures from their features N×… by a `Captioner`, with dropout off.

    ``seeds``, one for each picture, decide what is sampled.

    No caption has a gap (`without_gaps`). With ``decoding.confidence`` it comes without the words that the captioner is
    not sure of (`confident_texts`); a consensus is among samples without them.
    """
    if decoding.asks_scorer:
        raise ValueError("a scorer chooses among these captions; call inference.best_of.chosen_captions")
    batch_size = max(1, min(batch_size, SAMPLES_AT_ONCE // decoding.drawn.samples))
    texts: list[str] = []
    with in_mode(captioner.model, False), without_gaps(captioner):
        for start in range(0, len(visual), batch_size):
            block = captioner.inputs(torch.as_tensor(visual[start : start + batch_size]))
            of_block = None if seeds is None else seeds[start : start + batch_size]
            texts += _generate_texts(captioner, block, decoding, of_block)
    return texts


@contextmanager
def without_gaps(captioner: Any) -> Iterator[None]:
    """Suppresses the unknown word of a whole-word vocabulary within: in a caption it is a gap ("a man with a").

    What an objective samples keeps it, because log-probabilities are taken over the whole vocabulary.
    """
    before, words = captioner.gaps, getattr(getattr(captioner.tokenizer, "backend_tokenizer", None), "model", None)
    captioner.gaps = (captioner.tokenizer.unk_token_id,) if type(words).__name__ == "WordLevel" else ()
    try:
        yield
    finally:
        captioner.gaps = before


def _generate_texts(captioner: Any, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None) -> list[str]:
    rollout = captioner.generate(visual, decoding.drawn, seeds)
    texts = confident_texts(captioner, visual, rollout, least) if (least := decoding.confidence) else rollout.texts
    cut = zip(texts, captioner.stopped(rollout).tolist(), strict=True)
    captioner.cut = {" ".join(text.split()) for text, stopped in cut if not stopped}
    if decoding.kind != "consensus":
        return texts
    each = decoding.candidates
    return [consensus(texts[start : start + each]) for start in range(0, len(texts), each)]
