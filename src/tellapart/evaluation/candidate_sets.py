"""The candidate sets among which captions retrieve their pictures: pools, bags and look-alikes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class CandidateSets:
    """Sets of pictures, given as row numbers, and Q questions about them.

    ``sets`` holds row numbers of the feature matrix. Question q looks for row ``target_Q[q]`` in the set ``set_Q[q]``.
    Several questions can share a set: in a pool of 100, every picture is a target once.
    """

    sets: tuple[np.ndarray, ...]
    set_Q: np.ndarray
    target_Q: np.ndarray
    name: str = "given"

    def __post_init__(self) -> None:
        if len(self.set_Q) != len(self.target_Q):
            raise ValueError(
                f"Expected one set number per target; got {len(self.set_Q)} set numbers for {len(self.target_Q)} "
                "targets"
            )
        member_M = np.concatenate([*self.sets, np.zeros(0, np.intp)])
        span = 1 + max(int(member_M.max(initial=0)), int(self.target_Q.max(initial=0)))
        of_M = np.repeat(np.arange(len(self.sets)), [len(members) for members in self.sets])
        asked_Q = np.isin(self.set_Q * span + self.target_Q, of_M * span + member_M)
        if len(lost := np.flatnonzero(~asked_Q)):
            row, number = self.target_Q[lost[0]], self.set_Q[lost[0]]
            raise ValueError(f"Picture {row} is not among the candidates of its set {number}")

    def __len__(self) -> int:
        return len(self.target_Q)

    @cached_property
    def size_Q(self) -> np.ndarray:
        """Returns the number of candidates for each question."""
        size_Q: np.ndarray = np.array([len(members) for members in self.sets], dtype=np.intp)[self.set_Q]
        return size_Q

    def questions(self, n: int) -> np.ndarray:
        """Counts the questions that target each of the first n pictures."""
        return np.bincount(self.target_Q, minlength=n)[:n]

    def units(self, n: int) -> np.ndarray | None:
        """Returns the resampling unit of each of the first n pictures, or None if each picture is its own unit.

        Targets in one set compete, so their hits are dependent. Therefore, a set is one unit, and sets that share a
        target are merged into one unit. If a unit would have more than half of the questions, as with a single pool,
        each picture is its own unit.
        """
        unit_N, before_N = np.arange(n), np.zeros(0, np.intp)
        while not np.array_equal(unit_N, before_N):
            before_N, first_S = unit_N, np.full(len(self.sets), n)
            np.minimum.at(first_S, self.set_Q, unit_N[self.target_Q])
            unit_N = unit_N.copy()
            np.minimum.at(unit_N, self.target_Q, first_S[self.set_Q])
            unit_N = unit_N[unit_N]
        questions = np.bincount(unit_N[self.target_Q])
        return unit_N if 2 * questions.max(initial=0) <= len(self) else None

    @cached_property
    def by_set(self) -> list[np.ndarray]:
        """For each set, returns an int array with the indices of its questions."""
        order_Q = np.argsort(self.set_Q, kind="stable")
        return np.split(order_Q, np.searchsorted(self.set_Q[order_Q], np.arange(1, len(self.sets))))


def whole_sets(sets: Sequence[Sequence[int] | np.ndarray], name: str = "given") -> CandidateSets:
    """Returns candidate sets in which every picture of a set (bag, pool) is a target once."""
    rows = tuple(np.asarray(members, dtype=np.intp) for members in sets)
    set_Q = np.repeat(np.arange(len(rows)), [len(members) for members in rows])
    return CandidateSets(rows, set_Q, np.concatenate(rows) if rows else np.zeros(0, np.intp), name)


def random_pools(n: int, size: int = 100, shuffled: bool = False, seed: int = 0) -> CandidateSets:
    """Splits n pictures into pools of ``size``. Drops an incomplete last pool.

    Pools are consecutive (as in paper 3's code), or cut from one fixed permutation (as in paper 2's RD100).
    """
    order_N = np.random.default_rng(seed).permutation(n) if shuffled else np.arange(n)
    pools = [order_N[start : start + size] for start in range(0, n - size + 1, size)]
    return whole_sets(pools, f"random{size}" + (f"-shuffled{seed}" if shuffled else "-consecutive"))


def lookalike_sets(features_ND: np.ndarray, size: int = 10) -> CandidateSets:
    """Returns one set per picture: the picture itself, followed by its ``size − 1`` nearest neighbours by the cosine of
    image features.

    Skips copies of the target (cosine above 0.9999), because they cannot be distinguished from it.
    `tellapart.features.nearest` describes how ties are broken.
    """
    from tellapart.features.nearest import COPY, Exclusions, Vectors, nearest_among

    vectors = Vectors.of(features_ND)
    rows_N = np.arange(len(vectors))
    near = nearest_among(vectors, vectors, size - 1, Exclusions(rows_N, rows_N, COPY), label="look-alike sets")
    sets = [np.concatenate([[row], near_K[near_K >= 0]]) for row, near_K in enumerate(near.rows_NK)]
    return CandidateSets(tuple(sets), rows_N, rows_N, f"lookalike{size}")


def over_questions(sets: CandidateSets, value_Q: np.ndarray, n: int) -> np.ndarray:
    """For each of n pictures, averages the values of the questions about it; NaN for a picture without questions."""
    count_N = sets.questions(n)
    sum_N = np.bincount(sets.target_Q, weights=value_Q, minlength=n)[:n]
    return np.where(count_N > 0, sum_N / np.maximum(count_N, 1), np.nan)


def chance(sets: CandidateSets, n: int, k: int) -> np.ndarray:
    """For each of n pictures, computes the hit rate of a blind guess, k / set size; NaN for a picture without
    questions.
    """
    return over_questions(sets, np.minimum(1.0, k / sets.size_Q), n)
