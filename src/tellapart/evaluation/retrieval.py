"""Retrieval of pictures by their captions: the scorer ranks each caption's picture among its candidates.

`retrieve` ranks the candidates of `tellapart.evaluation.candidate_sets` by the scorer's similarity (the dot product of
L2-normalized features), and `Retrieval` holds one value per picture, NaN for a picture that is never a target.

As in papers 2 and 3, a caption is a hit if no distractor scores *higher* than the target, so ties are hits (the text
of paper 3, section 3, says "higher than all others", but the authors' code counts ties).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tellapart.errors import UsageError
from tellapart.evaluation.candidate_sets import CandidateSets, over_questions

ROWS_PER_BLOCK = 4096  # compares this many captions with this many candidates at once: 64 MB of scores
TIE = 1e-6  # tolerance for ties, because float32 cosines depend on the order of summation


@dataclass(frozen=True)
class Retrieval:
    """The ranks that a scorer gives the targets, by question and by picture, for the first ``n`` pictures.

    ``rank_Q`` counts the candidates with a higher score than the target (0 is a hit). ``picked_Q`` is the row of the
    top candidate. If there are several questions about a picture, its values (`hit`, `rank_N`) are means over these
    questions, ``questions_N`` is the number of questions, and corpus scores weight the picture by that number.
    """

    sets: CandidateSets
    rank_Q: np.ndarray
    picked_Q: np.ndarray
    text_ND: np.ndarray
    image_ND: np.ndarray
    n: int

    def scores(self, question: int) -> np.ndarray:
        """Computes the similarity of a question's caption to each candidate, in the order of the set."""
        members_K, row = self.sets.sets[self.sets.set_Q[question]], self.sets.target_Q[question]
        score_K: np.ndarray = self.image_ND[members_K] @ self.text_ND[row]
        return score_K

    @cached_property
    def questions_N(self) -> np.ndarray:
        """Returns the number of questions about each picture."""
        return self.sets.questions(self.n)

    @cached_property
    def rank_N(self) -> np.ndarray:
        """Returns each picture's mean rank, counting from 0; NaN for a picture without questions."""
        return over_questions(self.sets, self.rank_Q, self.n)

    @cached_property
    def picked_N(self) -> np.ndarray:
        """Returns the candidate picked for the first question about each picture; −1 for a picture without
        questions.
        """
        picked_N = np.full(max(self.n, int(self.sets.target_Q.max(initial=-1)) + 1), -1)
        picked_N[self.sets.target_Q[::-1]] = self.picked_Q[::-1]
        return picked_N[: self.n]

    def hit(self, k: int) -> np.ndarray:
        """Returns the share of each picture's questions that rank the target in the top k; NaN for a picture without
        questions.
        """
        return over_questions(self.sets, (self.rank_Q < k).astype(float), self.n)

    def recall(self, k: int) -> float:
        """Returns the share of all questions that rank the target in the top k, 0 to 1; NaN if there are no
        questions.
        """
        return float((self.rank_Q < k).mean()) if len(self.rank_Q) else float("nan")

    def first(self, n: int) -> Retrieval:
        """Returns the results for the first n pictures. Later pictures were only candidates."""
        return replace(self, n=n)

    def missed(self, rows: Sequence[int]) -> Retrieval:
        """Returns the results after ranking these pictures last, because an empty caption retrieves nothing."""
        lost_Q = np.isin(self.sets.target_Q, rows)
        rank_Q, picked_Q = self.rank_Q.copy(), self.picked_Q.copy()
        rank_Q[lost_Q] = self.sets.size_Q[lost_Q] - 1
        for question in np.flatnonzero(lost_Q & (picked_Q == self.sets.target_Q)):
            members_K = self.sets.sets[self.sets.set_Q[question]]
            others_K = members_K[members_K != self.sets.target_Q[question]]
            picked_Q[question] = others_K[0] if len(others_K) else picked_Q[question]
        return replace(self, rank_Q=rank_Q, picked_Q=picked_Q)


def per_set(found: Retrieval, ids: Sequence[str]) -> list[dict[str, Any]]:
    """For each set, returns its pictures, its targets, the targets that were ranked first, and the mean rank (from 1).

    ids: the ids of all rows, including candidates without captions.
    """
    rows = []
    for members, questions in zip(found.sets.sets, found.sets.by_set, strict=True):
        target_Q = found.sets.target_Q[questions]
        rank_Q = found.rank_Q[questions]
        rows.append(
            {
                "ids": [ids[row] for row in members],
                "asked": [ids[row] for row in target_Q],
                "hit": [ids[row] for row, rank in zip(target_Q, rank_Q, strict=True) if rank == 0],
                "mean_rank": float(rank_Q.mean() + 1) if len(rank_Q) else None,
            }
        )
    return rows


def retrieve(
    sets: CandidateSets, text_ND: np.ndarray, image_ND: np.ndarray, *, rows: int = ROWS_PER_BLOCK
) -> Retrieval:
    """Ranks each question's candidates by their similarity to the target's caption (a row of ``text_ND``).

    All features are L2-normalized floats. Every question counts, even if several questions have the same target
    (overlapping bags). In large sets, ``rows`` captions are compared with ``rows`` candidates at once. Raises
    `UsageError` for degenerate features (`check_features`).
    """
    check_features(text_ND[np.unique(sets.target_Q)], "texts")  # rows of pictures that are never targets can be zero
    check_features(image_ND, "pictures", differ=True)
    rank_Q, picked_Q = np.zeros(len(sets), np.intp), np.zeros(len(sets), np.intp)
    for members_K, question_M in zip(sets.sets, sets.by_set, strict=True):
        for at in range(0, len(question_M), rows):
            part_M = question_M[at : at + rows]
            rank_Q[part_M], picked_Q[part_M] = _ranks(sets.target_Q[part_M], members_K, text_ND, image_ND, rows)
    return Retrieval(sets, rank_Q, picked_Q, text_ND, image_ND, len(image_ND))


def check_features(features_ND: np.ndarray, what: str, differ: bool = False) -> None:
    """Raises `UsageError` for rows of zeros, NaN or infinity. Such rows would always be hits, because ties are hits.

    differ: whether to also reject features that are all equal.
    """
    parts = (features_ND[at : at + ROWS_PER_BLOCK] for at in range(0, len(features_ND), ROWS_PER_BLOCK))
    length_N = np.concatenate([np.linalg.norm(part.astype(np.float64), axis=1) for part in parts] or [np.ones(0)])
    if len(bad_N := np.flatnonzero(~(np.isfinite(length_N) & (length_N > 0)))):
        raise UsageError(
            f"the features of {len(bad_N):,} of {len(length_N):,} {what} are zero, NaN or infinite (first: row "
            f"{bad_N[0]}); the scorer is damaged or overflows; try --precision fp32 or another scorer"
        )
    if differ and len(features_ND) > 1 and (features_ND == features_ND[0]).all():
        raise UsageError(
            f"the features of all {len(features_ND):,} {what} are identical, so retrieval is meaningless; pass "
            "different pictures or another scorer"
        )


def _ranks(
    target_M: np.ndarray, members_K: np.ndarray, text_ND: np.ndarray, image_ND: np.ndarray, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns how many candidates score above each target, and each target's top candidate. Compares ``rows``
    candidates at once.
    """
    text_MD = text_ND[target_M]
    own_M = np.einsum("md,md->m", text_MD, image_ND[target_M])
    rank_M, best_M = np.zeros(len(target_M), np.intp), np.full(len(target_M), -np.inf, own_M.dtype)
    picked_M = target_M.copy()
    for at in range(0, len(members_K), rows):
        members_B = members_K[at : at + rows]
        score_MB = text_MD @ image_ND[members_B].T
        rank_M += (score_MB > own_M[:, None] + TIE).sum(1)
        place_M = score_MB.argmax(1)
        top_M = score_MB[np.arange(len(place_M)), place_M]
        better_M = top_M > best_M  # on a tie, the first candidate stays, as if all scores were compared at once
        best_M[better_M], picked_M[better_M] = top_M[better_M], members_B[place_M[better_M]]
    return rank_M, np.where(rank_M == 0, target_M, picked_M)
