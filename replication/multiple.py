"""Multiple testing: p-values for bounds, two one-sided tests for equivalence, and Holm's correction over parts.

A claim holds if all of its parts hold. This needs no correction, because each part is tested at the full level and all
parts must pass (an intersection-union test, Berger 1982, Technometrics 24, 295-300). A reader who picks out one of
several parts needs a correction, so Holm's p-values and intervals are reported next to the uncorrected ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tellapart.metrics.intervals import LEVEL

ALPHA = (1 - LEVEL) / 2  # one-sided level: the part of a two-sided 95 % interval on one side


def one_sided_p(drawn_R: np.ndarray, bound: float, above: bool) -> float:
    """Computes the p-value of "the value lies above the bound" (or below it) from R bootstrap draws.

    It is (1 + number of draws at or beyond the bound) / (R + 1). This inverts the percentile interval and counts the
    observed value as a draw (Davison and Hinkley 1997, Bootstrap Methods, sections 4.2.3 and 5.4). So p < α exactly if
    the one-sided percentile bound of level 1 − α excludes the bound, up to 1 / (R + 1). If any draw is NaN, p is 1.
    """
    if not np.isfinite(drawn_R).all():
        return 1.0
    beyond = np.count_nonzero(drawn_R <= bound if above else drawn_R >= bound)
    return (1 + int(beyond)) / (len(drawn_R) + 1)


def part_p(drawn_R: np.ndarray, lower: float, upper: float) -> float:
    """Computes a part's p-value. For equivalence, it is the larger p-value of two one-sided tests.

    TOST (Schuirmann 1987, J. Pharmacokinet. Biopharm. 15, 657-680): the value lies within (lower, upper) at level α if
    "above lower" and "below upper" both have p < α, so the p-value is the larger one. All tests are one-sided.
    """
    ps = [
        one_sided_p(drawn_R, bound, above) for bound, above in ((lower, True), (upper, False)) if math.isfinite(bound)
    ]
    return max(ps) if ps else 1.0


def holm_levels(p_values: Sequence[float], alpha: float = ALPHA) -> list[float]:
    """Returns the one-sided level at which Holm's procedure tests each p-value: α / (m − i + 1) for the i-th smallest.

    The interval with this tail probability on each side is reported as Holm's: it excludes the part's bound exactly if
    that test rejects. (Intervals that are simultaneous and agree with Holm's decisions are degenerate for
    parts that are rejected: Strassburger and Bretz 2008, Stat. Med. 27, 4914-4927.)
    """
    levels = [0.0] * len(p_values)
    for rank, n in enumerate(_order(p_values)):
        levels[n] = alpha / (len(p_values) - rank)
    return levels


def _order(p_values: Sequence[float]) -> list[int]:
    return sorted(range(len(p_values)), key=lambda n: p_values[n])
