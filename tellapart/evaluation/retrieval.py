"""Retrieval of a picture by its caption: candidate sets, ranks, hits.

One interface for every protocol: `CandidateSets` says which pictures a caption has to be told from,
`retrieve` ranks them by the scorer's match (the dot product of normalised features), and `Retrieval`
holds one value per picture, NaN for a picture that no set asks for.

Papers 2 and 3 count a caption as a hit where no distractor scores *higher* than the target: ties are hits
(the text of paper 3, section 3, says "higher than all others"; the authors' program counts ties).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

TIE = 1e-6  # cosines nearer than float32 sums of another order can tell apart count as equal
DUPLICATE = 0.9999
_BLOCK = 256


@dataclass(frozen=True)
class CandidateSets:
    """Sets of pictures, by row, and the questions asked of them.

    ``sets`` holds rows of the feature matrix; question q asks for row ``target_Q[q]`` in the set
    ``set_Q[q]``. Several questions may share a set (in a pool of 100 every picture is asked for once).
    """

    sets: tuple[np.ndarray, ...]
    set_Q: np.ndarray
    target_Q: np.ndarray
    name: str = "given"

    def __post_init__(self) -> None:
        for number, row in zip(self.set_Q, self.target_Q, strict=True):
            if row not in self.sets[number]:
                raise ValueError(f"picture {row} is not among the candidates of its set {number}")

    def __len__(self) -> int:
        return len(self.target_Q)

    @cached_property
    def by_set(self) -> list[np.ndarray]:
        """The questions of each set."""
        order_Q = np.argsort(self.set_Q, kind="stable")
        return np.split(order_Q, np.searchsorted(self.set_Q[order_Q], np.arange(1, len(self.sets))))


def given_sets(
    candidates: Sequence[Sequence[int] | np.ndarray], targets: Sequence[int], name: str = "given"
) -> CandidateSets:
    """One question a set: candidates are rows of the feature matrix, ``targets`` the position of the target."""
    sets = tuple(np.asarray(rows, dtype=np.intp) for rows in candidates)
    target_Q = np.array([rows[position] for rows, position in zip(sets, targets, strict=True)], dtype=np.intp)
    return CandidateSets(sets, np.arange(len(sets)), target_Q, name)


def whole_sets(sets: Sequence[Sequence[int] | np.ndarray], name: str = "given") -> CandidateSets:
    """Every picture of every set is asked for once, among its own set (bags, pools)."""
    rows = tuple(np.asarray(members, dtype=np.intp) for members in sets)
    set_Q = np.repeat(np.arange(len(rows)), [len(members) for members in rows])
    return CandidateSets(rows, set_Q, np.concatenate(rows) if rows else np.zeros(0, np.intp), name)


def random_pools(n: int, size: int = 100, shuffled: bool = False, seed: int = 0) -> CandidateSets:
    """n pictures cut into pools of ``size``; the last, incomplete one is dropped.

    Consecutive as they come (paper 3's program), or after one fixed permutation (RD100 of paper 2).
    """
    order_N = np.random.default_rng(seed).permutation(n) if shuffled else np.arange(n)
    pools = [order_N[start : start + size] for start in range(0, n - size + 1, size)]
    return whole_sets(pools, f"random{size}" + (f"-shuffled{seed}" if shuffled else "-consecutive"))


def lookalike_sets(features_ND: np.ndarray, size: int = 10, keys: Sequence[str] | None = None) -> CandidateSets:
    """Each picture with its ``size − 1`` nearest neighbours by the cosine of image features, itself first.

    A copy of the target (cosine above 0.9999, or the same content key) cannot be told from it and is left
    out. Neighbours whose cosine is equal to a millionth come in the order of their rows.
    """
    from tellapart.progress import track

    unit_ND = _unit(features_ND)
    content_N = np.unique(np.asarray(keys), return_inverse=True)[1] if keys is not None else None
    sets: list[np.ndarray] = []
    for start in track(range(0, len(unit_ND), _BLOCK), label=f"look-alike sets ({_BLOCK} pictures a step)"):
        for row, cosine_N in enumerate(unit_ND[start : start + _BLOCK] @ unit_ND.T, start):
            cosine_N[cosine_N > DUPLICATE] = -np.inf
            if content_N is not None:
                cosine_N[content_N == content_N[row]] = -np.inf
            cosine_N[row] = -np.inf
            sets.append(np.concatenate([[row], _largest(cosine_N, size - 1)]))
    rows_N = np.arange(len(unit_ND))
    return CandidateSets(tuple(sets), rows_N, rows_N, f"lookalike{size}")


@dataclass(frozen=True)
class Retrieval:
    """What a scorer made of the captions: for each picture its rank, and which picture was taken for it.

    ``rank_N`` counts the candidates with a higher score (0 is a hit, NaN: not asked); ``picked_N`` is a row,
    −1 where not asked; ``size_N`` is the size of its set.
    """

    sets: CandidateSets
    rank_N: np.ndarray
    picked_N: np.ndarray
    size_N: np.ndarray
    scores: tuple[np.ndarray, ...]

    def hit(self, k: int) -> np.ndarray:
        """1.0 where the target is among the first k, 0.0 where not, NaN where not asked."""
        return np.where(np.isnan(self.rank_N), np.nan, (self.rank_N < k).astype(float))

    def first(self, n: int) -> Retrieval:
        """The same of the first n pictures: those after them were candidates only."""
        return replace(self, rank_N=self.rank_N[:n], picked_N=self.picked_N[:n], size_N=self.size_N[:n])


def per_set(found: Retrieval, ids: Sequence[str]) -> list[dict[str, Any]]:
    """What became of each set: its pictures, who was asked for, who was found at once, the mean rank (from 1).

    ids: of the rows, candidates beyond the captioned ones included.
    """
    rows = []
    for members, questions in zip(found.sets.sets, found.sets.by_set, strict=True):
        target_Q = found.sets.target_Q[questions]
        rank_Q = found.rank_N[target_Q]
        rows.append(
            {
                "ids": [ids[row] for row in members],
                "asked": [ids[row] for row in target_Q],
                "hit": [ids[row] for row, rank in zip(target_Q, rank_Q, strict=True) if rank == 0],
                "mean_rank": float(rank_Q.mean() + 1) if len(rank_Q) else None,
            }
        )
    return rows


def retrieve(sets: CandidateSets, text_ND: np.ndarray, image_ND: np.ndarray) -> Retrieval:
    """Rank each question's candidates by the match of the target's caption (row of ``text_ND``) with them.

    Both features are normalised, float. ``scores`` has one vector per question, in the order of its set.
    A picture asked for more than once (overlapping bags) keeps its last question.
    Raises ValueError where features are not finite.
    """
    for name, features_ND in (("text", text_ND), ("image", image_ND)):
        if not np.isfinite(features_ND).all():
            raise ValueError(f"the {name} features hold NaN or infinity")
    n = len(image_ND)
    rank_N, picked_N, size_N = np.full(n, np.nan), np.full(n, -1), np.full(n, np.nan)
    scores: list[np.ndarray] = [np.zeros(0)] * len(sets)
    for members_K, question_Q in zip(sets.sets, sets.by_set, strict=True):
        target_Q = sets.target_Q[question_Q]
        score_QK = text_ND[target_Q] @ image_ND[members_K].T
        position_Q = np.argmax(members_K[None, :] == target_Q[:, None], axis=1)
        own_Q = score_QK[np.arange(len(target_Q)), position_Q]
        rank_Q = (score_QK > own_Q[:, None] + TIE).sum(1)
        rank_N[target_Q] = rank_Q
        picked_N[target_Q] = np.where(rank_Q == 0, target_Q, members_K[score_QK.argmax(1)])
        size_N[target_Q] = len(members_K)
        for question, score_K in zip(question_Q, score_QK, strict=True):
            scores[question] = score_K
    return Retrieval(sets, rank_N, picked_N, size_N, tuple(scores))


def chance(sets: CandidateSets, n: int, k: int) -> np.ndarray:
    """What a blind guess hits: k of the set's size, for each of n pictures; NaN where not asked."""
    hit_N = np.full(n, np.nan)
    for members_K, question_Q in zip(sets.sets, sets.by_set, strict=True):
        hit_N[sets.target_Q[question_Q]] = min(1.0, k / len(members_K))
    return hit_N


def _unit(features_ND: np.ndarray) -> np.ndarray:
    features_ND = np.asarray(features_ND, dtype=np.float32)
    return features_ND / np.maximum(np.linalg.norm(features_ND, axis=1, keepdims=True), 1e-12)


def _largest(cosine_N: np.ndarray, k: int) -> np.ndarray:
    """Rows of the k largest, largest first, those within a millionth of each other by row; −inf is never one."""
    k = min(k, int(np.count_nonzero(cosine_N > -np.inf)))
    if k <= 0:
        return np.zeros(0, np.intp)
    least = np.partition(cosine_N, len(cosine_N) - k)[len(cosine_N) - k]
    row_M = np.flatnonzero(cosine_N >= least - TIE)  # the cut may fall among equals
    return row_M[np.argsort(-np.round(cosine_N[row_M] / TIE), kind="stable")][:k]
