"""What a verifier says of one caption: how many of its claims are true, and how much of what is true it states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tellapart.metrics.resampling import SummedStatistic

Span = tuple[int, int, str]  # start and end in characters, and the reason


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts for one caption. A verifier that knows no whole truth has ``expected`` 0: there is no recall then.

    claims: those that the verifier can check. correct: the true ones; a graded verifier gives parts of one. expected:
    facts that a full description states. recalled: those that the caption states. false: places of false words.
    """

    claims: float
    correct: float
    expected: float = 0.0
    recalled: float = 0.0
    false: tuple[Span, ...] = ()

    @property
    def precision(self) -> float:
        """0..1; NaN for a caption without a claim."""
        return self.correct / self.claims if self.claims else float("nan")

    @property
    def recall(self) -> float:
        """0..1; NaN where the verifier knows no whole truth."""
        return self.recalled / self.expected if self.expected else float("nan")

    @property
    def f(self) -> float:
        """Harmonic mean of precision and recall; 0 for a caption without a claim."""
        if not self.expected:
            return float("nan")
        both = (self.precision if self.claims else 0.0) + self.recall
        return 2 * self.precision * self.recall / both if self.claims and both else 0.0

    def counts(self) -> tuple[float, float, float, float]:
        """``(correct, claims, recalled, expected)``."""
        return (self.correct, self.claims, self.recalled, self.expected)


def rates(verdicts: Sequence[Verdict]) -> np.ndarray:
    """Precision, recall and F of each caption, N×3, 0..1."""
    return np.array([(verdict.precision, verdict.recall, verdict.f) for verdict in verdicts]).reshape(-1, 3)


def rate_statistic(counts_N4: np.ndarray, which: int) -> SummedStatistic:
    """Precision (0), recall (1) or F (2) of a corpus × 100: counts are summed over captions before dividing."""

    def number(counts_R4: np.ndarray) -> np.ndarray:
        correct, claims, recalled, expected = np.moveaxis(np.asarray(counts_R4, dtype=float), -1, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            precision, recall = correct / claims, recalled / expected
            f = 2 * precision * recall / (precision + recall)
        f = np.where((expected > 0) & ((correct == 0) | (recalled == 0)), 0.0, f)  # as of one caption
        found: np.ndarray = 100 * (precision, recall, f)[which]
        return found

    return SummedStatistic(counts_N4, number, bounds=(0.0, 100.0))
