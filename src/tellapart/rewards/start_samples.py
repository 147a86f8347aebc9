"""Draws samples of the initial model, whose consensus rewards use."""

from __future__ import annotations

import torch

from tellapart.models import collectives, ranks
from tellapart.models.decoding import Decoding
from tellapart.rewards.speaker import Speaker
from tellapart.types import Batch


def check_sampling(decoding: Decoding) -> None:
    """Raises ValueError unless ``decoding`` draws several samples per picture and leaves them unedited."""
    if decoding.kind != "sample" or decoding.samples < 2:
        raise ValueError(
            f"decoding is {decoding.kind} with samples = {decoding.samples}; a consensus needs at least 2 samples, so "
            'set kind = "sample" and samples = 16'
        )
    for name in ("confidence", "paragraphs"):
        if getattr(decoding, name):
            raise ValueError(
                f"decoding.{name} edits captions, but the consensus counts unedited samples; remove decoding.{name}"
            )


class StartSamples:
    """Samples ``decoding.samples`` captions for each picture from the initial model.

    Each step draws new samples for each picture, independently of the rest of the batch. Each rank generates the
    samples for its share of the pictures.
    """

    def __init__(self, speaker: Speaker, decoding: Decoding) -> None:
        self.speaker, self.decoding = speaker, decoding

    def __call__(self, batch: Batch) -> list[str]:
        """Returns the samples of all pictures in the batch, grouped by picture."""
        share, seeds = ranks.share(len(batch.rows_B)), batch.seeds
        own_seeds = (
            None if seeds is None else seeds.apart("consensus")[share]
        )  # independent of the rollout's random numbers
        with torch.no_grad():
            rollout = self.speaker.start.generate(self.speaker.visual(batch, share), self.decoding, own_seeds)
        return collectives.gather_texts(rollout.texts)
