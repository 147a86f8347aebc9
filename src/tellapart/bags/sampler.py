"""Samplers that choose a batch's pictures: whole bags of look-alikes, or random pictures, each with its hard
distractors.

A sampler is a stateless function of the step that draws from (seed, epoch) or (seed, step), so a run that stops in the
middle of an epoch resumes with the same batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Protocol

import numpy as np

from tellapart.bags.training_bags import TrainingBags, training_bags
from tellapart.errors import UsageError


@dataclass(frozen=True)
class BatchRows:
    """The ascending rows of a batch's pictures.

    bag_B: index of each picture's bag, if there are bags.
    distractors_BK: additional rows to distinguish each picture from, padded with −1.
    """

    rows_B: np.ndarray
    bag_B: np.ndarray | None = None
    distractors_BK: np.ndarray | None = None


class Sampler(Protocol):
    """Chooses the pictures of each step's batch."""

    def __call__(self, step: int) -> BatchRows: ...


class BagSampler:
    """Fills batches with as many whole bags as fit, and never splits a bag.

    plan: returns the bags for an epoch, either lists of rows or `TrainingBags`. Loose pictures of `TrainingBags` are
        grouped at random into bags of the same size in every epoch; a remainder is dropped.
    Shuffles the bags by (seed, epoch) and drops the last batch if another bag would fit into it. Raises `UsageError`
    for a bag larger than the batch.
    """

    def __init__(self, plan: Callable[[int], Sequence[np.ndarray] | TrainingBags], batch_size: int, seed: int) -> None:
        self.plan, self.batch_size, self.seed = plan, batch_size, seed
        self._starts = [0]  # the first step of each epoch so far
        self._packed = lru_cache(maxsize=1)(self._pack)

    def __call__(self, step: int) -> BatchRows:
        while self._starts[-1] <= step:
            self._starts.append(self._starts[-1] + len(self._packed(len(self._starts) - 1)))
        epoch = int(np.searchsorted(self._starts, step, side="right")) - 1
        bags = self._packed(epoch)[step - self._starts[epoch]]
        rows_B = np.concatenate(bags)
        bag_B = np.repeat(np.arange(len(bags)), [len(bag) for bag in bags])
        order_B = np.argsort(rows_B, kind="stable")
        return BatchRows(rows_B[order_B], bag_B[order_B])

    def _pack(self, epoch: int) -> list[list[np.ndarray]]:
        """Returns the bags of each batch in an epoch."""
        bags = self._bags(epoch)
        if not bags:
            raise UsageError(
                "there are no bags to fill a batch with, because there are fewer pictures than the bag size"
            )
        if (largest := max(map(len, bags))) > self.batch_size:
            raise UsageError(
                f"a bag of {largest} does not fit into a batch of {self.batch_size}; set "
                f"training.batch_size to at least {largest}, or use smaller bags"
            )
        batches: list[list[np.ndarray]] = [[]]
        room = self.batch_size
        for number in np.random.default_rng([self.seed, epoch]).permutation(len(bags)):
            if len(bags[number]) > room:
                batches.append([])
                room = self.batch_size
            batches[-1].append(bags[number])
            room -= len(bags[number])
        return batches[:-1] if room >= min(map(len, bags)) and len(batches) > 1 else batches

    def _bags(self, epoch: int) -> list[np.ndarray]:
        plan = self.plan(epoch)
        if not isinstance(plan, TrainingBags):
            return [np.asarray(bag) for bag in plan]
        loose_L = np.random.default_rng([self.seed, epoch, 3]).permutation(plan.loose_L)
        whole = len(loose_L) // plan.size
        return [*plan.bags_MS, *loose_L[: whole * plan.size].reshape(whole, plan.size)]


class HardNegativeSampler:
    """Adds each picture's ``hard`` nearest neighbours to another sampler's batches as distractors (paper 3, appendix
    D.2).

    Distractors are neither captioned nor rewarded, so they do not change the number of steps per epoch. They can be any
    pictures in the data, including those in the batch. rows_NK: each picture's neighbours, padded with −1.
    Raises `UsageError` if ``hard`` leaves no room in a softmax over the batch size, or exceeds K.
    """

    def __init__(self, batches: Sampler, rows_NK: np.ndarray, hard: int, batch_size: int) -> None:
        if hard + 1 > batch_size:
            raise UsageError(f"a target with {hard} hard distractors does not fit into a batch of {batch_size}")
        if hard > rows_NK.shape[1]:
            raise UsageError(
                f"bags.hard: expected at most {rows_NK.shape[1]} (the number of neighbours), got {hard}; decrease it"
            )
        self.batches, self.rows_NK, self.hard = batches, rows_NK, hard

    def __call__(self, step: int) -> BatchRows:
        chosen = self.batches(step)
        return replace(chosen, distractors_BK=self.rows_NK[chosen.rows_B, : self.hard])


def bag_size_at(schedule: Sequence[tuple[int, int]], epoch: int) -> int:
    """Returns the bag size of an epoch, given by the last schedule entry that has begun."""
    return [size for start, size in schedule if start <= epoch][-1]


def curriculum(
    rows_NK: np.ndarray, schedule: Sequence[tuple[int, int]], log: Callable[[str], None] = lambda line: None
) -> Callable[[int], TrainingBags]:
    """Returns a plan for `BagSampler`: bags of look-alikes whose size grows according to ``schedule`` (paper 2,
    BagCurri).

    Builds the bags of each size on first use, and passes ``log`` a line with the number of pictures in bags.
    """

    @cache
    def bags_of(size: int) -> TrainingBags:
        bags = training_bags(rows_NK, size)
        log(bags.line())
        return bags

    return lambda epoch: bags_of(bag_size_at(schedule, epoch))


def random_bags(n: int, schedule: Sequence[tuple[int, int]]) -> Callable[[int], TrainingBags]:
    """Returns a plan for `BagSampler` with bags of random pictures, the control for a curriculum."""

    def plan(epoch: int) -> TrainingBags:
        size = bag_size_at(schedule, epoch)
        return TrainingBags(size, np.zeros((0, size), np.int64), np.arange(n))

    return plan


class ShuffleSampler:
    """Shuffles all n pictures once per epoch and drops the incomplete last batch."""

    def __init__(self, n: int, batch_size: int, seed: int) -> None:
        self.n, self.batch_size = n, min(batch_size, n)
        self._order = lru_cache(maxsize=1)(lambda epoch: np.random.default_rng([seed, epoch]).permutation(n))

    def __call__(self, step: int) -> BatchRows:
        epoch, place = divmod(step, self.n // self.batch_size)
        return BatchRows(np.sort(self._order(epoch)[place * self.batch_size :][: self.batch_size]))
