"""Validation during training: how good the learner is on the validation pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch

from tellapart.captioners import generate_captions
from tellapart.evaluation.test_sets import CandidateSets, lookalike_sets, random_pools, retrieve
from tellapart.metrics.cider import cider_d
from tellapart.metrics.lexical import length, repetition_rate
from tellapart.models import ranks
from tellapart.objectives.mle import at_least_float32, mle_of_references
from tellapart.training.setup import TrainingSetup
from tellapart.types import Item, Rows
from tellapart.utils.rng import ItemSeeds


class Validation:
    """Validation of a run's learner. What stays the same from step to step is computed once, on first use."""

    def __init__(self, setup: TrainingSetup) -> None:
        self.setup = setup

    @property
    def items(self) -> list[Item]:
        return self.setup.validation_items

    def prepare(self) -> None:
        """Encode what validation looks at."""
        _ = self.pictures
        if self.setup.scorer is not None:
            _ = self.lookalikes

    def run(self) -> dict[str, float]:
        """Every metric on the validation pictures, with dropout off: recalls and CIDEr-D in percent, loss in nats."""
        self.setup.learner.model.eval()
        with torch.no_grad():
            values = self._of_scorer() if self.setup.recipe.trains == "scorer" else self._of_captioner()
        self.setup.learner.model.train()
        return values

    def _of_captioner(self) -> dict[str, float]:
        values: dict[str, float] = {}
        share = ranks.share(len(self.items))
        pictures = self.pictures[share]
        visual: Rows | torch.Tensor = pictures
        if self.setup.reads_pixels:
            visual = self.encode_pixels(pictures, self.setup.captioner.encode)
        recipe, references = self.setup.recipe, [list(item.references) for item in self.items]
        if recipe.validation.select == "loss" or (recipe.objective.learns_references and all(references)):
            values["loss"] = self._loss(visual, self.token_rows[share])
        seeds = ItemSeeds(tuple(item.id for item in self.items), recipe.seed)
        decoding = recipe.validation.decoding
        texts = ranks.gather_texts(generate_captions(self.setup.captioner, visual, decoding, seeds=seeds[share]))
        if recipe.validation.select == "cider" or all(references):
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
        """Tokens of the first reference of each validation picture."""
        return self.setup.tokenize([item.references[0] for item in self.items], "validation references")

    @cached_property
    def image_features_ND(self) -> np.ndarray:
        """The frozen scorer's view of the validation pictures."""
        assert self.setup.scorer is not None
        return np.asarray(self.setup.store.features(self.items, self.setup.scorer.encoder))

    @cached_property
    def lookalikes(self) -> CandidateSets:
        return lookalike_sets(self.image_features_ND, self.setup.recipe.evaluation.lookalike)

    def encode_pixels(self, pixels: Rows, encode: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        blocks = (pixels[start : start + 100] for start in range(0, len(pixels), 100))
        return torch.cat([at_least_float32(encode(self.setup.pixels.tensor(rows))) for rows in blocks])

    def _loss(self, visual: Rows | torch.Tensor, rows: Sequence[Sequence[int]]) -> float:
        """Mean negative log-likelihood of a token of these references, and those of the other ranks, in nats."""
        total, tokens = 0.0, 0
        for start in range(0, len(rows), 100):
            tokens_RT, valid_RT = (x.to(self.setup.device) for x in self.setup.captioner.pad(rows[start : start + 100]))
            block = torch.as_tensor(visual[start : start + 100]).to(self.setup.device)
            loss, count = mle_of_references(self.setup.captioner, block, tokens_RT, valid_RT), int(valid_RT.sum())
            total, tokens = total + float(loss) * count, tokens + count
        summed = ranks.add_up({"loss": total, "tokens": tokens})
        return summed["loss"] / summed["tokens"]

    def _of_scorer(self) -> dict[str, float]:
        """R@1 of the references themselves, mean over the first five."""
        items = self.items
        images_ND = self.encode_pixels(self.pictures, self.setup.trained_scorer.image_features).cpu().numpy()
        lookalikes = lookalike_sets(images_ND, self.setup.recipe.evaluation.lookalike)
        count = min(5, min(len(item.references) for item in items))
        recalls = []
        for k in range(count):
            texts_ND = self.setup.trained_scorer.text_features([item.references[k] for item in items]).cpu().numpy()
            recalls.append(self._recalls(texts_ND, images_ND, lookalikes))
        return {key: float(np.mean([recall[key] for recall in recalls])) for key in recalls[0]}

    def _recalls(self, texts_ND: np.ndarray, images_ND: np.ndarray, lookalikes: CandidateSets) -> dict[str, float]:
        pools = random_pools(len(images_ND), self._pool_size)
        return {
            key: 100 * retrieve(sets, texts_ND, images_ND).recall(1)
            for key, sets in ((f"recall@1.random{self._pool_size}", pools), ("recall@1.lookalike", lookalikes))
        }

    @property
    def _pool_size(self) -> int:
        """Pictures in a random pool of validation: a hundred, or all where there are fewer."""
        return min(100, len(self.items))

    @property
    def select(self) -> str:
        """The key of the validation value that chooses the checkpoint; it names the size of the pool as it is."""
        select = self.setup.recipe.validation.select
        return f"recall@1.random{self._pool_size}" if select == "recall@1.random100" else select
