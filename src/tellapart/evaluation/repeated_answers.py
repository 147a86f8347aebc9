"""Computes means and standard deviations over a judge's repeated answers."""

from __future__ import annotations

import math

import numpy as np


def mean_over_repeats(value_KN: np.ndarray) -> np.ndarray:
    """Returns each caption's mean over the repeats in which the judge did not abstain; NaN if there are none."""
    return np.asarray(np.ma.masked_invalid(value_KN).mean(0).filled(np.nan))


def deviation_over_repeats(value_KN: np.ndarray) -> float:
    """Returns the root mean square, over captions, of the standard deviation over repeats (K − 1 in the denominator).

    Skips captions with fewer than two answers; NaN if none remain.
    """
    variance_M = np.ma.masked_invalid(value_KN).var(0, ddof=1).compressed()
    return float(np.sqrt(variance_M.mean())) if len(variance_M) else math.nan
