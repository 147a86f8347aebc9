"""Ranks that account for ties."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def places(score_QN: np.ndarray, target_Q: np.ndarray, *, zero: bool) -> np.ndarray:
    """For each query, returns (better, equal): the number of texts that score higher than the query's target, and the
    number that score the same.

    zero: treat a score of 0 as no match, for which ``better`` is infinite.
    """
    own_Q1 = score_QN[np.arange(len(target_Q)), target_Q][:, None]
    near = 1e-9 * np.maximum(np.abs(own_Q1), 1.0)
    better_Q = (score_QN > own_Q1 + near).sum(1).astype(float)
    equal_Q = (np.abs(score_QN - own_Q1) <= near).sum(1).astype(float)
    if zero:
        better_Q[own_Q1[:, 0] <= 0] = np.inf
    return np.stack([better_Q, equal_Q], axis=1)


def expected_gain(gain: Callable[[np.ndarray], np.ndarray], place_Q2: np.ndarray) -> np.ndarray:
    """For each query, computes the mean gain over the ranks (counting from 1) that equal scores share."""
    value_Q = np.zeros(len(place_Q2))
    for q, (better, equal) in enumerate(place_Q2):
        if np.isfinite(better):
            value_Q[q] = gain(better + 1 + np.arange(int(equal))).mean()
    return value_Q
