"""Several findings at once: p-values of bounds, two one-sided tests for equivalence, Holm's correction over parts.

A claim holds when all of its parts do. For that alone no correction is needed: each part is tested at the full level,
and all must pass (an intersection-union test, Berger 1982, Technometrics 24, 295-300). Who reads one part of several,
and takes it as found, needs one: hence Holm's p-values and intervals beside the plain ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tellapart.metrics.intervals import LEVEL

ALPHA = (1 - LEVEL) / 2  # one-sided: what a two-sided interval of 95 % leaves on one side


def one_sided_p(drawn_R: np.ndarray, bound: float, above: bool) -> float:
    """The p-value of "the value lies above the bound" (or below it) from R draws of the bootstrap.

    (1 + number of draws at or beyond the bound) / (R + 1): the percentile interval inverted, with the draw that was
    seen counted in (Davison and Hinkley 1997, Bootstrap Methods, sections 4.2.3 and 5.4). So p < α exactly where the
    one-sided percentile bound of level 1 − α excludes the bound, up to 1 / (R + 1). NaN among the draws: 1.
    """
    if not np.isfinite(drawn_R).all():
        return 1.0
    beyond = np.count_nonzero(drawn_R <= bound if above else drawn_R >= bound)
    return (1 + int(beyond)) / (len(drawn_R) + 1)


def part_p(drawn_R: np.ndarray, lower: float, upper: float) -> float:
    """The p-value of a part: of its one bound, or the larger of both (equivalence by two one-sided tests).

    TOST (Schuirmann 1987, J. Pharmacokinet. Biopharm. 15, 657-680): the value is shown to lie within (lower, upper) at
    level α where "above lower" and "below upper" both have p < α; the p-value is the larger one. One-sided throughout.
    """
    ps = [
        one_sided_p(drawn_R, bound, above) for bound, above in ((lower, True), (upper, False)) if math.isfinite(bound)
    ]
    return max(ps) if ps else 1.0


def holm_levels(p_values: Sequence[float], alpha: float = ALPHA) -> list[float]:
    """The one-sided level at which Holm's procedure compares each p-value: α / (m − i + 1) for the i-th smallest.

    The interval that leaves this much on each side is the one reported as Holm's: its bound excludes the part's exactly
    where that comparison rejects. (Intervals that are simultaneous and agree with Holm's decisions are degenerate for
    parts that are rejected: Strassburger and Bretz 2008, Stat. Med. 27, 4914-4927.)
    """
    levels = [0.0] * len(p_values)
    for rank, n in enumerate(_order(p_values)):
        levels[n] = alpha / (len(p_values) - rank)
    return levels


def _order(p_values: Sequence[float]) -> list[int]:
    return sorted(range(len(p_values)), key=lambda n: p_values[n])
