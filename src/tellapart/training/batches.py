"""Training batches: the pictures and references for each step. A batch depends only on the seed and the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch

from tellapart.bags.sampler import Sampler
from tellapart.captioners import Captioner
from tellapart.scorers import Scorer
from tellapart.training.pixels import TrainingPixels
from tellapart.training.random_crops import random_crops
from tellapart.types import Batch, Item, Rows
from tellapart.utils.rng import ItemSeeds

IN_MEMORY = 2**28  # maximum size in bytes of the training pictures' features if they are read into memory


class DeferredBatch(Batch):
    """A batch that computes ``visual`` on first access, so that each rank computes only its own share.

    ``visual`` can be set to a function that maps a slice of the batch to rows.
    """

    __slots__ = ("_visual",)
    _visual: torch.Tensor | Callable[[slice], torch.Tensor]

    @property
    def visual(self) -> torch.Tensor:
        """Returns `Batch.visual`, computed on first access."""
        if not isinstance(self._visual, torch.Tensor):
            self._visual = self._visual(slice(0, len(self.rows_B)))
        return self._visual

    @visual.setter
    def visual(self, visual: torch.Tensor | Callable[[slice], torch.Tensor]) -> None:
        self._visual = visual

    def __getitem__(self, pictures: slice) -> Batch:
        first, stop, _ = pictures.indices(len(self.rows_B))
        if isinstance(make := self._visual, torch.Tensor) or (first, stop) == (0, len(self.rows_B)):
            return Batch.__getitem__(self, slice(first, stop))

        def made(part: slice) -> torch.Tensor:
            return make(slice(first + part.start, first + part.stop))

        return self.part(slice(first, stop), made)


class TrainingSet:
    """Batches of training pictures and their references.

    ``batch(step)`` depends only on ``seed`` and ``step``, so a run can stop anywhere and resume.

    visual: features from a frozen encoder, N×…, or rows of ``pixels`` if the vision encoder is trained. The rows are
        read into memory if they take at most `IN_MEMORY` bytes.
    rows: the token ids of each picture's references; None if the objective does not use references.
    sampler: selects the pictures for each batch (`tellapart.bags.sampler`).
    """

    def __init__(
        self,
        items: Sequence[Item],
        visual: Rows,
        rows: Sequence[Sequence[Sequence[int]]] | None,
        learner: Captioner | Scorer,
        sampler: Sampler,
        *,
        seed: int,
        captions_per_picture: int = 1,
        augment: str = "none",
        pixels: TrainingPixels | None = None,
    ) -> None:
        small = getattr(visual, "nbytes", IN_MEMORY + 1) <= IN_MEMORY
        self.items, self.visual, self.rows = items, np.asarray(visual) if small else visual, rows
        self.learner, self.device = learner, learner.device
        self.sampler, self.seed = sampler, seed
        self.captions_per_picture, self.augment, self.pixels = captions_per_picture, augment, pixels

    def batch(self, step: int) -> Batch:
        """Returns the batch for a step. Pixels are computed lazily and only for this rank's share."""
        chosen = self.sampler(step)
        chosen_B = chosen.rows_B
        items = [self.items[i] for i in chosen_B]
        seeds = ItemSeeds(tuple(item.id for item in items), self.seed, step)
        rows_B = torch.from_numpy(chosen_B)
        if self.pixels is None:
            visual = torch.from_numpy(np.ascontiguousarray(self.visual[chosen_B])).to(self.device)
            batch = Batch(items, rows_B, visual, step=step, seed=self.seed)
        else:

            def pixels(part: slice) -> torch.Tensor:
                return self._pixels(chosen_B[part], seeds[part])

            batch = DeferredBatch(items, rows_B, cast(Any, pixels), step=step, seed=self.seed)
        if chosen.bag_B is not None:
            batch.bag_B = torch.from_numpy(chosen.bag_B)
        if chosen.distractors_BK is not None:
            batch.distractors_BK = torch.from_numpy(chosen.distractors_BK)
        if self.rows is not None:
            tokens_RT, valid_RT = self.learner.pad(self._pick(chosen_B, seeds))
            batch.tokens_RT, batch.valid_RT = tokens_RT.to(self.device), valid_RT.to(self.device)
        return batch

    def _pick(self, chosen_B: np.ndarray, seeds: ItemSeeds) -> list[Sequence[int]]:
        """Draws ``captions_per_picture`` references per picture, without replacement if the picture has enough."""
        assert self.rows is not None
        rows_B = [self.rows[int(i)] for i in chosen_B]
        orders = seeds.orders("references", [len(rows) for rows in rows_B])
        places = range(self.captions_per_picture)
        return [rows[order[k % len(rows)]] for rows, order in zip(rows_B, orders, strict=True) for k in places]

    def _pixels(self, chosen_B: np.ndarray, seeds: ItemSeeds) -> torch.Tensor:
        assert self.pixels is not None
        if self.augment == "blip":
            return self.pixels.tensor(self.pixels.augmented([self.items[i].picture for i in chosen_B], seeds))
        pixels_BCHW = self.pixels.tensor(self.visual[chosen_B])
        return pixels_BCHW if self.augment == "none" else random_crops(pixels_BCHW, seeds, flip="flip" in self.augment)
