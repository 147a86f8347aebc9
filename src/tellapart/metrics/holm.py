"""Holm's correction of p-values for multiple tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns Holm's adjusted p-values, in input order. NaN does not count as a test.

    With p(1) ≤ … ≤ p(m), the adjusted p(i) is the maximum over j ≤ i of min(1, (m − j + 1) · p(j)). The family-wise
    error rate is at most α under any dependence (Holm 1979, Scand. J. Statist. 6, 65-70).
    """
    p_M = np.asarray(p_values, dtype=float)
    order = np.argsort(p_M, kind="stable")[: np.count_nonzero(~np.isnan(p_M))]
    adjusted_M = np.full(len(p_M), math.nan)
    adjusted_M[order] = np.maximum.accumulate(np.minimum(1, p_M[order] * np.arange(len(order), 0, -1)))
    return [float(p) for p in adjusted_M]
