"""Many statistics in the same resamples: one pass over the weights serves every metric and system of an evaluation.

    draws = Draws(resamples=1000, seed=0)
    drawn = [draws.bootstrap(statistic, n) for statistic in statistics]
    draws.run()
    drawn[0].values_R

Statistics of equally many items meet the same weights. Those that are made of sums (`SummedStatistic`) have their
counts side by side, so that each block of weights is one matrix product for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tellapart.metrics.resampling import (
    Statistic,
    SummedStatistic,
    bootstrap_weights,
    disjoint_halves,
    evaluate_many,
    grows,
    random_swaps,
    summed_parts,
)

Combine = Callable[[Sequence[np.ndarray]], np.ndarray]
Weights = Callable[[int, int, int], Iterator[np.ndarray]]


@dataclass(eq=False)
class Drawn:
    """A statistic in each of R resamples, once `Draws.run` has been called."""

    values_R: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(eq=False)
class _Summed:
    """Arrays N×C whose weighted sums R×C, one for each array, ``combine`` makes numbers of."""

    counts: list[np.ndarray]
    combine: Combine
    drawn: Drawn


@dataclass(eq=False)
class _Plain:
    """What takes weights R×N, a block at a time."""

    evaluate: Callable[[np.ndarray], np.ndarray]
    drawn: Drawn
    blocks: list[np.ndarray] = field(default_factory=list)


@dataclass(eq=False)
class _Pass:
    """What is computed from the same weights."""

    summed: list[_Summed] = field(default_factory=list)
    plain: list[_Plain] = field(default_factory=list)


class Draws:
    """Bootstrap resamples and permutations of items, drawn by ``seed``: see the module's text."""

    def __init__(self, resamples: int, seed: int) -> None:
        self.resamples, self.seed = resamples, seed
        self._passes: dict[tuple[Weights, int], _Pass] = {}

    def bootstrap(self, statistic: Statistic, n: int) -> Drawn:
        """A statistic of n items in each bootstrap resample of them; of a growing one see `_by_halves`."""
        if grows(statistic):
            return Drawn(_by_halves(statistic, n, self.resamples, self.seed))
        parts = summed_parts(statistic)
        if parts is None:
            return self._plain(bootstrap_weights, n, lambda weight_RN: evaluate_many(statistic, weight_RN))
        each, scale = parts
        return self._summed(bootstrap_weights, n, [part.counts_NC for part in each], _mean_of(each, scale))

    def swap(self, system: Statistic, baseline: Statistic, n: int, pooled: Callable[[], Statistic]) -> Drawn:
        """The difference of two statistics of n items where each permutation gives an item's two values to the two
        sides at random.

        pooled: makes the statistic of 2n items, the system's first, for statistics that are not made of sums.
        """
        a, b = summed_parts(system), summed_parts(baseline)
        if a is None or b is None:
            return self.swap_pooled(pooled(), n)
        (a_parts, a_scale), (b_parts, b_scale) = a, b
        width = math.lcm(len(a_parts), len(b_parts))  # a side with fewer captions of a picture says them again
        a_parts, b_parts = a_parts * (width // len(a_parts)), b_parts * (width // len(b_parts))
        if any(x.counts_NC.shape != y.counts_NC.shape for x, y in zip(a_parts, b_parts, strict=True)):
            return self.swap_pooled(pooled(), n)  # a picture's captions are one row, and one system has more of them
        a_sums, b_sums = ([part.counts_NC.sum(0) for part in parts] for parts in (a_parts, b_parts))
        a_number, b_number = _mean_of(a_parts, a_scale), _mean_of(b_parts, b_scale)

        def combine(moved: Sequence[np.ndarray]) -> np.ndarray:
            """``moved`` R×C: what swapping takes from the baseline's sums and adds to the system's."""
            return a_number([own + moved_RC for own, moved_RC in zip(a_sums, moved, strict=True)]) - b_number(
                [own - moved_RC for own, moved_RC in zip(b_sums, moved, strict=True)]
            )

        moves = [right.counts_NC - left.counts_NC for left, right in zip(a_parts, b_parts, strict=True)]
        return self._summed(random_swaps, n, moves, combine)

    def swap_pooled(self, pooled: Statistic, n: int) -> Drawn:
        """As `swap`, by the statistic of 2n items, the system's first, under weights of 0 and 1: the plain way."""

        def difference(swap_RN: np.ndarray) -> np.ndarray:
            system_R = evaluate_many(pooled, np.concatenate([1 - swap_RN, swap_RN], axis=1))
            base_R = evaluate_many(pooled, np.concatenate([swap_RN, 1 - swap_RN], axis=1))
            difference_R: np.ndarray = system_R - base_R
            return difference_R

        return self._plain(random_swaps, n, difference)

    def flip(self, difference_N: np.ndarray) -> Drawn:
        """The sum of differences under random signs."""
        total = difference_N.sum()
        return self._summed(
            random_swaps, len(difference_N), [difference_N[:, None]], lambda sums: total - 2.0 * sums[0][:, 0]
        )

    def run(self) -> None:
        """Draw: afterwards all that was asked for has its values."""
        for (weights, n), work in self._passes.items():
            arrays = list({id(counts): counts for one in work.summed for counts in one.counts}.values())
            place = dict(zip(map(id, arrays), np.cumsum([0, *(counts.shape[1] for counts in arrays)]), strict=False))
            joined_NC = np.concatenate(arrays, axis=1) if arrays else np.zeros((n, 0))
            sums = []
            for weight_RN in weights(n, self.resamples, self.seed):
                sums.append(weight_RN @ joined_NC)
                for other in work.plain:
                    other.blocks.append(other.evaluate(weight_RN))
            sums_RC = np.concatenate(sums)
            for one in work.summed:
                starts = [place[id(counts)] for counts in one.counts]
                own = [sums_RC[:, at : at + c.shape[1]] for at, c in zip(starts, one.counts, strict=True)]
                one.drawn.values_R = one.combine(own)
            for other in work.plain:
                other.drawn.values_R = np.concatenate(other.blocks)
        self._passes.clear()

    def _summed(self, weights: Weights, n: int, counts: list[np.ndarray], combine: Combine) -> Drawn:
        task = _Summed(counts, combine, Drawn())
        self._passes.setdefault((weights, n), _Pass()).summed.append(task)
        return task.drawn

    def _plain(self, weights: Weights, n: int, evaluate: Callable[[np.ndarray], np.ndarray]) -> Drawn:
        task = _Plain(evaluate, Drawn())
        self._passes.setdefault((weights, n), _Pass()).plain.append(task)
        return task.drawn


def _mean_of(parts: Sequence[SummedStatistic], scale: float) -> Combine:
    """The numbers of the parts' sums, their mean, times a scale."""

    def combine(sums: Sequence[np.ndarray]) -> np.ndarray:
        numbers = [part.number(sums_RC) for part, sums_RC in zip(parts, sums, strict=True)]
        mean_R: np.ndarray = scale * np.mean(numbers, axis=0)
        return mean_R

    return combine


def _by_halves(statistic: Statistic, n: int, resamples: int, seed: int) -> np.ndarray:
    """Draws of a `GrowingStatistic` V: V(n) + (V(half) − V(other half)) · √(V(n) / 2 V̄(half)) over random halves.

    The difference of two disjoint halves has twice the variance of V(n/2), whatever V is, and the variance of a count
    of distinct things grows with n as the count does (as the expected count does for Poisson samples of a power law).
    """
    value = statistic(np.ones(n))
    halves = [
        (evaluate_many(statistic, a_RN), evaluate_many(statistic, b_RN))
        for a_RN, b_RN in disjoint_halves(n, resamples, seed)
    ]
    a_R, b_R = (np.concatenate(side) for side in zip(*halves, strict=True))
    half = float(a_R.mean() + b_R.mean()) / 2
    drawn_R: np.ndarray = value + (a_R - b_R) * math.sqrt(value / (2 * half) if half > 0 else 0.5)
    return drawn_R
