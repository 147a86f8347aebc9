"""When a finding holds: signs that agree on every seed, and an interval over pictures and seeds.

A `Sample` is what was measured of one arm with one seed, as a function of how often each picture was drawn. So one
bootstrap serves means, ratios of sums and counts of distinct words, and differences of arms over the same pictures
stay paired. With one seed the interval is over pictures alone.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

RESAMPLES = 1000
LEVEL = 0.95


@dataclass(frozen=True)
class Sample:
    """``statistic(weight_RN) -> value_R`` over the n pictures called ``pictures``; ``setting``: of a recall, its n,
    candidates and chance."""

    pictures: str
    n: int
    statistic: Callable[[np.ndarray], np.ndarray]
    setting: str = ""

    def value(self) -> float:
        return float(self.statistic(np.ones((1, self.n)))[0])


def ratio(pictures: str, above_N: np.ndarray, below_N: np.ndarray | None = None) -> Sample:
    """Σ above / Σ below over the pictures; without ``below`` the mean. A NaN above is left out of both sums."""
    above_N = np.asarray(above_N, dtype=float)
    counts_N = ~np.isnan(above_N)
    below_N = np.where(counts_N, 1.0 if below_N is None else np.asarray(below_N, dtype=float), 0.0)
    above_N = np.where(counts_N, above_N, 0.0)

    def statistic(weight_RN: np.ndarray) -> np.ndarray:
        below_R = weight_RN @ below_N
        return np.divide(weight_RN @ above_N, below_R, out=np.full(len(weight_RN), np.nan), where=below_R > 0)

    return Sample(pictures, len(above_N), statistic)


def corpus(pictures: str, n: int, statistic: Callable[[np.ndarray], float]) -> Sample:
    """A number that is no ratio of sums, such as a vocabulary, from its function of one row of weights."""
    return Sample(pictures, n, lambda weight_RN: np.array([statistic(weight_N) for weight_N in weight_RN]))


@dataclass(frozen=True)
class Finding:
    """One part of a claim as it came out: the mean over seeds, its interval, each seed, and whether it holds."""

    says: str
    value: float
    low: float
    high: float
    seeds: tuple[float, ...]
    holds: bool


def find(
    says: str,
    terms: Sequence[tuple[float, Sequence[Sample]]],
    above: float = 0.0,
    below: float = math.inf,
    resamples: int = RESAMPLES,
) -> Finding:
    """Σ factor · sample, with one sample of each term for each seed, against the bounds named beforehand.

    One bound ("more than"): each seed's value and the whole interval lie on its right side. Two bounds ("about
    equal"): the interval lies between them. Seeds and pictures are both drawn with replacement.
    """
    count = len(terms[0][1])
    weights = {s.pictures: draw(s.pictures, s.n, resamples) for _, samples in terms for s in samples}
    seeds, drawn_SR = np.zeros(count), np.zeros((count, resamples))
    for factor, samples in terms:
        for seed, sample in enumerate(samples):
            seeds[seed] += factor * sample.value()
            drawn_SR[seed] += factor * sample.statistic(weights[sample.pictures])
    # A resample misses pictures, so that a count of words is too low in it: its width counts, not its place.
    drawn_SR += (seeds - np.nanmean(drawn_SR, axis=1))[:, None]
    pick_RS = np.random.default_rng([0, count]).integers(count, size=(resamples, count))
    mean_R = drawn_SR[pick_RS, np.arange(resamples)[:, None]].mean(1)
    low, high = np.nanquantile(mean_R, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Finding(
        says, float(seeds.mean()), float(low), float(high), tuple(map(float, seeds)),
        verdict(seeds, float(low), float(high), above, below),
    )  # fmt: skip


def verdict(seeds: Sequence[float] | np.ndarray, low: float, high: float, above: float, below: float) -> bool:
    """The rule itself. NaN anywhere is no finding."""
    if not np.isfinite([*seeds, low, high]).all():
        return False
    between = above < low and high < below
    if math.isfinite(above) and math.isfinite(below):
        return between
    return between and all(above < value < below for value in seeds)


@lru_cache(maxsize=16)  # room for every set of pictures that the claims are about
def draw(pictures: str, n: int, resamples: int) -> np.ndarray:
    """weight_RN: how often each picture is drawn. The same for every arm measured on these pictures."""
    rng = np.random.default_rng(zlib.crc32(pictures.encode()))
    weight_RN = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(resamples)]).astype(float)
    weight_RN.flags.writeable = False
    return weight_RN
