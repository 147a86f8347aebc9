"""The verdict on one caption: how many of its claims are true, and how many of the picture's facts it states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tellapart.metrics.corpus_scores import Sums

Span = tuple[int, int, str]  # start and end as character offsets, and the reason


@dataclass(frozen=True, slots=True)
class Verdict:
    """Claim counts for one caption. If the ground truth is incomplete, verifiers set ``expected`` to 0 to leave recall
    undefined.

    claims: the number of checkable claims.
    correct: the number of true claims, fractional for a graded verifier.
    expected: the number of facts in a full description.
    recalled: the number of these facts that the caption states.
    false: the spans of false words.
    """

    claims: float
    correct: float
    expected: float = 0.0
    recalled: float = 0.0
    false: tuple[Span, ...] = ()

    @property
    def precision(self) -> float:
        """Returns the precision, 0..1; NaN if the caption makes no claims."""
        return float(rates([self])[0, 0])

    @property
    def recall(self) -> float:
        """Returns the recall, 0..1; NaN if the verifier has no complete ground truth."""
        return float(rates([self])[0, 1])

    @property
    def f(self) -> float:
        """Returns the harmonic mean of precision and recall; 0 if the caption makes no claims, NaN if recall is
        undefined.
        """
        return float(rates([self])[0, 2])

    def counts(self) -> tuple[float, float, float, float]:
        """Returns ``(correct, claims, recalled, expected)``."""
        return (self.correct, self.claims, self.recalled, self.expected)


def rates(verdicts: Sequence[Verdict]) -> np.ndarray:
    """Returns each caption's precision, recall and F, N×3, 0..1."""
    return _rates(np.array([verdict.counts() for verdict in verdicts], dtype=float).reshape(-1, 4))


def rate_statistic(counts_N4: np.ndarray, which: int) -> Sums:
    """Returns a corpus statistic, × 100, from counts summed over captions: precision (0), recall (1) or F (2)."""
    return Sums(counts_N4, lambda counts_R4: 100 * _rates(counts_R4)[..., which], bounds=(0.0, 100.0))


def _rates(counts_R4: np.ndarray) -> np.ndarray:
    correct, claims, recalled, expected = np.moveaxis(np.asarray(counts_R4, dtype=float), -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision, recall = correct / claims, recalled / expected
        f = 2 * precision * recall / (precision + recall)
    f = np.where((expected > 0) & ((correct == 0) | (recalled == 0)), 0.0, f)
    return np.stack([precision, recall, f], axis=-1)
