"""Validates during training: computes the metrics that select the checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch

from tellapart.captioners import generate_captions
from tellapart.evaluation.candidate_sets import CandidateSets, lookalike_sets, random_pools
from tellapart.evaluation.retrieval import retrieve
from tellapart.metrics.cider import cider_d
from tellapart.metrics.lexical import length, repetition_rate
from tellapart.models import collectives, ranks
from tellapart.models.precision import at_least_float32
from tellapart.objectives.mle import mle_of_references
from tellapart.training.build import TrainingSetup
from tellapart.training.freed_memory import FreedMemory
from tellapart.training.references import tokenize_references
from tellapart.types import Item, Rows
from tellapart.utils.blocks import blocks_of
from tellapart.utils.rng import ItemSeeds

MAX_PICTURES = 100  # maximum number of pictures whose features are in memory at once
# Maximum number of feature values in memory at once on a CPU: four pictures for BLIP at 384 pixels, whose patches have
# 42 MB of keys and values each.
MAX_VALUES = 2**21


class Validator:
    """Validates a run's learner. Values that do not change between steps are computed only once, on first use."""

    def __init__(self, setup: TrainingSetup) -> None:
        self.setup = setup

    @property
    def items(self) -> list[Item]:
        return self.setup.validation_items

    def prepare(self) -> None:
        """Encodes the validation pictures."""
        _ = self.pictures
        if self.setup.scorer is not None:
            _ = self.lookalikes

    def run(self) -> dict[str, float]:
        """Computes all metrics on the validation pictures, without dropout.

        Recall and CIDEr-D are in percent, the loss is in nats.
        """
        self.setup.learner.model.eval()
        with torch.no_grad():
            values = self._of_scorer() if self.setup.recipe.trains == "scorer" else self._of_captioner()
        self.setup.learner.model.train()
        return values

    def _of_captioner(self) -> dict[str, float]:
        values: dict[str, float] = {}
        share, pictures = ranks.share(len(self.items)), self.pictures
        recipe, references = self.setup.recipe, [list(item.references) for item in self.items]
        learned = recipe.select == "loss" or (recipe.objective.learns_references and all(references))
        rows = self.token_rows if learned else []
        seeds = ItemSeeds(tuple(item.id for item in self.items), recipe.seed)
        captions: list[str] = []
        total, tokens = 0.0, 0
        held, freed = self._held(pictures), FreedMemory()
        for start in range(share.start, share.stop, held):  # all patches of 5,000 pictures would take 9 GB with BLIP
            freed.give_back()
            block = slice(start, min(start + held, share.stop))  # at most this rank's share
            visual: Rows | torch.Tensor = pictures[block]
            if self.setup.reads_pixels:
                visual = self.encode_pixels(pictures[block], self.setup.captioner.encode)
            if learned:
                loss, count = self._loss(visual, rows[block])
                total, tokens = total + loss * count, tokens + count
            captions += generate_captions(self.setup.captioner, visual, recipe.validation.decoding, seeds=seeds[block])
        texts = collectives.gather_texts(captions)
        if learned:
            summed = collectives.add_up({"loss": total, "tokens": tokens})
            values["loss"] = summed["loss"] / summed["tokens"]
        if recipe.select == "cider" or all(references):
            values["cider"] = 100 * cider_d(texts, references)[0]
        values["length"], values["repetition_rate"] = length(texts, [])[0], repetition_rate(texts, [])[0]
        if self.setup.scorer is not None:
            texts_ND = self.setup.scorer.text_features(texts).cpu().numpy()
            values |= self._recalls(texts_ND, self.image_features_ND, self.lookalikes)
        return values

    @cached_property
    def pictures(self) -> Rows:
        return self.setup.visual(self.items)

    @cached_property
    def token_rows(self) -> list[list[int]]:
        """Token ids of each validation picture's first reference."""
        texts = [item.references[0] for item in self.items]
        return tokenize_references(self.setup.learner, self.setup.recipe, texts, "validation references")

    @cached_property
    def image_features_ND(self) -> np.ndarray:
        """The frozen scorer's features for the validation pictures."""
        assert self.setup.scorer is not None
        return np.asarray(self.setup.store.features(self.items, self.setup.scorer.encoder))

    @cached_property
    def lookalikes(self) -> CandidateSets:
        return lookalike_sets(self.image_features_ND, self.setup.recipe.evaluation.lookalike)

    def encode_pixels(self, pixels: Rows, encode: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        blocks = blocks_of(pixels, self._held(pixels))
        return torch.cat([at_least_float32(encode(self.setup.pixels.tensor(np.asarray(block)))) for block in blocks])

    def _held(self, rows: Rows) -> int:
        """Returns the number of pictures to keep in memory at once. On a CPU, this depends on the size of a row."""
        if self.setup.device.type != "cpu" or not len(rows):
            return MAX_PICTURES
        return max(1, min(MAX_PICTURES, MAX_VALUES // math.prod(rows[:1].shape[1:])))

    def _loss(self, visual: Rows | torch.Tensor, rows: Sequence[Sequence[int]]) -> tuple[float, int]:
        """Computes the mean negative log-likelihood per reference token, in nats, and the number of tokens."""
        tokens_RT, valid_RT = (x.to(self.setup.device) for x in self.setup.captioner.pad(rows))
        visual_R = torch.as_tensor(visual).to(self.setup.device)
        return float(mle_of_references(self.setup.captioner, visual_R, tokens_RT, valid_RT)), int(valid_RT.sum())

    def _of_scorer(self) -> dict[str, float]:
        """Computes R@1 for the references, averaged over each picture's first five references."""
        items = self.items
        images_ND = self._scorer_images().cpu().numpy()
        lookalikes = lookalike_sets(images_ND, self.setup.recipe.evaluation.lookalike)
        count = min(5, min(len(item.references) for item in items))
        recalls = []
        for k in range(count):
            texts_ND = self.setup.trained_scorer.text_features([item.references[k] for item in items]).cpu().numpy()
            recalls.append(self._recalls(texts_ND, images_ND, lookalikes))
        return {key: float(np.mean([recall[key] for recall in recalls])) for key in recalls[0]}

    def _scorer_images(self) -> torch.Tensor:
        """Computes features N×D for the validation pictures with the scorer that is being trained."""
        pictures, scorer = self.pictures, self.setup.trained_scorer
        if self.setup.reads_pixels:
            return self.encode_pixels(pictures, scorer.image_features)
        blocks = (torch.as_tensor(np.asarray(block)) for block in blocks_of(pictures, 100))
        return torch.cat([at_least_float32(scorer.image_features(block)) for block in blocks])

    def _recalls(self, texts_ND: np.ndarray, images_ND: np.ndarray, lookalikes: CandidateSets) -> dict[str, float]:
        pools = random_pools(len(images_ND), self._pool_size)
        return {
            key: 100 * retrieve(sets, texts_ND, images_ND).recall(1)
            for key, sets in ((f"recall@1.random{self._pool_size}", pools), ("recall@1.lookalike", lookalikes))
        }

    @property
    def _pool_size(self) -> int:
        """Returns the size of the random pool in validation: 100, or all pictures if there are fewer."""
        return min(100, len(self.items))

    @property
    def select(self) -> str:
        """The key of the validation value that selects the checkpoint, with the actual pool size."""
        select = self.setup.recipe.select
        return f"recall@1.random{self._pool_size}" if select == "recall@1.random100" else select
