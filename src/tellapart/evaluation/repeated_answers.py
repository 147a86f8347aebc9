"""Means and deviations over repeated answers of a judge."""

from __future__ import annotations

import math

import numpy as np


def mean_over_repeats(value_KN: np.ndarray) -> np.ndarray:
    """Returns each caption's mean over the repeats in which the judge did not abstain; NaN if there are none."""
    known_KN = ~np.isnan(value_KN)
    count_N = known_KN.sum(0)
    return np.where(count_N > 0, np.where(known_KN, value_KN, 0).sum(0) / np.maximum(count_N, 1), np.nan)


def deviation_over_repeats(value_KN: np.ndarray) -> float:
    """Returns the root mean square, over captions, of the standard deviation over repeats (K − 1 in the denominator).

    Skips captions with fewer than two answers; NaN if none remain.
    """
    known_KN = ~np.isnan(value_KN)
    count_N = known_KN.sum(0)
    square_N = np.where(known_KN, (value_KN - mean_over_repeats(value_KN)) ** 2, 0).sum(0)
    several_N = count_N > 1
    return float(np.sqrt(np.mean(square_N[several_N] / (count_N[several_N] - 1)))) if several_N.any() else math.nan
