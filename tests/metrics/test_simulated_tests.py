"""Intervals cover the true value, and tests reject no more than they say, in simulated evaluations.

Captions of two systems are drawn from a population whose numbers are the truth. All simulated evaluations of a metric
meet the same resamples, in one matrix product.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tellapart.metrics.bleu_score import bleu_of, bleu_stats
from tellapart.metrics.cider import cider_d
from tellapart.metrics.corpus_scores import PERCENT, UNBOUNDED, Measurement, Sums
from tellapart.metrics.draws import Draws
from tellapart.metrics.system_statistics import SystemStatistics

POPULATION, WORDS = 4000, 4000
KINDS = {"mean": UNBOUNDED, "bleu4": PERCENT, "cider": (0.0, 1000.0), "event": PERCENT}


@cache
def population() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Statistics or values of each caption of systems a and b; b is better."""
    rng = np.random.default_rng(0)
    zipf_W = 1 / np.arange(1, WORDS + 1) ** 1.05
    texts: tuple[list[str], list[str]] = ([], [])
    references = []
    for _ in range(POPULATION):
        scene = rng.choice(WORDS, size=int(rng.integers(6, 18)), p=zipf_W / zipf_W.sum())

        def say(keep: float, scene: np.ndarray = scene) -> str:
            return " ".join(f"w{word}" for word in scene[rng.random(len(scene)) < keep]) or "w0"

        for own, keep in zip(texts, (0.7, 0.78), strict=True):
            own.append(say(keep))
        references.append([say(0.75) for _ in range(3)])
    gamma_N = rng.gamma(4, 1, POPULATION)
    return {
        "mean": (gamma_N, gamma_N + rng.normal(0.2, 1, POPULATION)),
        "bleu4": tuple(bleu_stats(own, references) for own in texts),
        "cider": tuple(100 * cider_d(own, references)[1] for own in texts),
        "event": tuple(100.0 * (rng.random(POPULATION) < share) for share in (0.02, 0.05)),
    }


def _score(sums: np.ndarray) -> np.ndarray:
    return 100 * bleu_of(sums)


def simulate(kind: str, n: int, differ: bool, trials: int) -> tuple[float, float, float]:
    """Returns how often the difference and system a's number are covered, and how often p is below 0.05."""
    rng, draws, tests = np.random.default_rng([n, differ]), Draws(seed=1), []
    both, bounds = population()[kind], KINDS[kind]

    def measured(own: np.ndarray) -> Measurement:
        return Measurement(None, Sums(own, _score, bounds)) if kind == "bleu4" else Measurement(own)

    for _ in range(trials):
        rows = rng.integers(POPULATION, size=n)
        a, b = (own[rows] for own in both)
        if not differ:  # each caption is of either system
            swap = (rng.random(n) < 0.5).reshape(-1, *[1] * (a.ndim - 1))
            a, b = np.where(swap, b, a), np.where(swap, a, b)
        tests.append(SystemStatistics(draws, {"a": measured(a), "b": measured(b)}, [("a", "b")], bounds))
    a, b = (float(_score(own.sum(0))) if kind == "bleu4" else float(own.mean()) for own in both)
    gap = b - a if differ else 0.0
    pairs = [test.differences()["a", "b"] for test in tests]
    covered = np.mean([pair.low <= gap <= pair.high for pair in pairs])
    own = [test.intervals()["a"] for test in tests] if differ else []
    alone = np.mean([one.low <= a <= one.high for one in own]) if differ else float(covered)
    return float(covered), float(alone), float(np.mean([pair.p < 0.05 for pair in pairs]))


def check(kind: str, n: int, trials: int, coverage: float, rate: float) -> None:
    for differ in (False, True):
        covered, alone, rejected = simulate(kind, n, differ, trials)
        # Of a 2 % event the intervals are exact and the test has few values, so that both err on the safe side.
        most, least = (1.0, 0.0) if kind == "event" else (0.95 + coverage, 0.05 - rate)
        assert 0.95 - coverage <= covered <= most and 0.95 - coverage <= alone <= most, (differ, covered, alone)
        assert differ or least <= rejected <= 0.05 + rate, rejected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [20, 100])
def test_intervals_cover_and_p_keeps_its_level(kind: str, n: int) -> None:
    check(kind, n, 400, 0.035, 0.03)  # about three standard errors of 400 evaluations


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [20, 100, 1000])
def test_coverage_is_95_percent_and_false_positives_are_5(kind: str, n: int) -> None:
    check(kind, n, 2000, 0.02, 0.015)
