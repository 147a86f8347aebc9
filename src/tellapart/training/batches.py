"""Training data as the loop wants it: all is read, encoded and tokenised once; a batch is a function of the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F

from tellapart.bags.sampler import BatchRows, Sampler
from tellapart.models.protocols import Learner
from tellapart.training.pixels import TrainingPixels
from tellapart.types import Batch, Item, Rows
from tellapart.utils.rng import ItemSeeds


class ShuffleSampler:
    """Each epoch is one shuffle of all n pictures; the incomplete last batch is dropped."""

    def __init__(self, n: int, batch_size: int, seed: int) -> None:
        self.n, self.batch_size, self.seed = n, min(batch_size, n), seed
        self._epoch, self._order_N = -1, np.empty(0, dtype=np.int64)

    def __call__(self, step: int) -> BatchRows:
        epoch, place = divmod(step, self.n // self.batch_size)
        if epoch != self._epoch:
            self._epoch, self._order_N = epoch, np.random.default_rng([self.seed, epoch]).permutation(self.n)
        return BatchRows(np.sort(self._order_N[place * self.batch_size : (place + 1) * self.batch_size]))


class DeferredBatch(Batch):
    """A batch whose ``visual`` is made when it is first read, so that a rank makes that of its share alone.

    ``visual`` may be given as a function that makes the rows of a part of the batch.
    """

    __slots__ = ("_visual",)
    _visual: torch.Tensor | Callable[[slice], torch.Tensor]

    @property
    def visual(self) -> torch.Tensor:
        """As `Batch.visual`."""
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
    """Pictures and references, ready for batches.

    ``visual`` are features of a frozen encoder (N×…), or rows of ``pixels`` where the vision encoder itself is
    trained. ``batch(step)`` depends on nothing but ``seed`` and ``step``, so a run can stop anywhere and go on.
    ``sampler`` says which pictures share a batch (`tellapart.bags.sampler`).
    """

    def __init__(
        self,
        items: Sequence[Item],
        visual: Rows,
        rows: Sequence[Sequence[Sequence[int]]] | None,
        learner: Learner,
        sampler: Sampler,
        *,
        seed: int,
        captions_per_picture: int = 1,
        augment: str = "none",
        pixels: TrainingPixels | None = None,
    ) -> None:
        self.items, self.visual, self.rows, self.learner = items, visual, rows, learner
        self.sampler, self.seed = sampler, seed
        self.captions_per_picture, self.augment, self.pixels = captions_per_picture, augment, pixels

    def batch(self, step: int) -> Batch:
        chosen = self.sampler(step)
        chosen_B = chosen.rows_B
        items = [self.items[i] for i in chosen_B]
        seeds = ItemSeeds(tuple(item.id for item in items), self.seed, step)

        def visual(part: slice) -> torch.Tensor:
            return self._visual(chosen_B[part], seeds[part])

        # Features are there already; pixels are made for a rank's share alone.
        rows_B, whole = torch.from_numpy(chosen_B), slice(0, len(chosen_B))
        if self.pixels is None:
            batch = Batch(items, rows_B, visual(whole), step=step, seed=self.seed)
        else:
            batch = DeferredBatch(items, rows_B, cast(Any, visual), step=step, seed=self.seed)
        if chosen.bag_B is not None:
            batch.bag_B = torch.from_numpy(chosen.bag_B)
        if chosen.distractors_BK is not None:
            batch.distractors_BK = torch.from_numpy(chosen.distractors_BK)
        if self.rows is not None:
            tokens_RT, valid_RT = self.learner.pad(self._pick(chosen_B, seeds))
            batch.tokens_RT, batch.valid_RT = tokens_RT.to(self.learner.device), valid_RT.to(self.learner.device)
        return batch

    def _pick(self, chosen_B: np.ndarray, seeds: ItemSeeds) -> list[Sequence[int]]:
        """``captions_per_picture`` references of each picture: without repetition as long as there are enough."""
        assert self.rows is not None
        rows_B = [self.rows[int(i)] for i in chosen_B]
        orders = seeds.orders("references", [len(rows) for rows in rows_B])
        wanted = range(self.captions_per_picture)
        return [rows[order[k % len(rows)]] for rows, order in zip(rows_B, orders, strict=True) for k in wanted]

    def _visual(self, chosen_B: np.ndarray, seeds: ItemSeeds) -> torch.Tensor:
        rows = self.visual[chosen_B]
        if self.pixels is None:
            return torch.from_numpy(np.ascontiguousarray(rows)).to(self.learner.device)
        pixels_BCHW = self.pixels.tensor(rows)
        return pixels_BCHW if self.augment == "none" else random_crops(pixels_BCHW, seeds, flip="flip" in self.augment)


def random_crops(pixels_BCHW: torch.Tensor, seeds: ItemSeeds, *, flip: bool, smallest: float = 0.6) -> torch.Tensor:
    """A random part of each picture (``smallest``..1 of each side), mirrored half the time with ``flip``,
    brightness and tint varied; resampled to the same size."""
    B, device = len(pixels_BCHW), pixels_BCHW.device
    drawn = iter(seeds.uniform("crops", 9).float().to(device).unbind(1))

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * next(drawn)

    size_B, aspect_B = uniform(smallest, 1.0), uniform(0.85, 1.18)
    width_B, height_B = (size_B * aspect_B).clamp(max=1), (size_B / aspect_B).clamp(max=1)
    mirror_B = torch.where(uniform(0, 1) < 0.5, -1.0, 1.0) if flip else torch.ones(B, device=device)
    frame = torch.zeros(B, 2, 3, device=device)
    frame[:, 0, 0], frame[:, 1, 1] = width_B * mirror_B, height_B
    frame[:, 0, 2], frame[:, 1, 2] = uniform(-1, 1) * (1 - width_B), uniform(-1, 1) * (1 - height_B)
    grid = F.affine_grid(frame, list(pixels_BCHW.shape), align_corners=False)
    crops = F.grid_sample(pixels_BCHW, grid, align_corners=False, padding_mode="reflection")
    brightness_B, tint_B3 = uniform(0.7, 1.3), torch.stack([uniform(-0.2, 0.2) for _ in range(3)], dim=1)
    changed = crops * brightness_B[:, None, None, None] + tint_B3[:, :, None, None]
    return changed.contiguous(memory_format=torch.channels_last)
