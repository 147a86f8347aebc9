"""Computes a metric's rank correlation with human ratings, and its accuracy on pairs.

Array suffixes: N is the number of captions, each with a score and a rating; P is the number of pairs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tellapart.errors import MissingExtra


def scipy_stats() -> Any:
    """Returns `scipy.stats`. Raises `MissingExtra` if scipy is not installed."""
    try:
        from scipy import stats
    except ImportError:
        raise MissingExtra("study", "the rank correlation with human judgements") from None
    return stats


def kendall_tau_b(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Computes Kendall's tau-b, -1..1; NaN if all scores or all ratings are equal."""
    return float(scipy_stats().kendalltau(score_N, rating_N).statistic)


def kendall_tau_c(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Computes Kendall's tau-c (Stuart 1953), which is reported for Flickr8k-Expert and Composite. See
    `kendall_tau_b`.
    """
    return float(scipy_stats().kendalltau(score_N, rating_N, variant="c").statistic)


def spearman(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Computes Spearman's rho, -1..1, with mean ranks for ties; NaN if all scores or all ratings are equal."""
    if min(np.ptp(score_N), np.ptp(rating_N)) == 0:
        return math.nan
    return float(scipy_stats().spearmanr(score_N, rating_N).statistic)


def pair_accuracy(better_P: np.ndarray, worse_P: np.ndarray) -> float:
    """Computes the share of pairs, 0..1, in which the preferred caption has the higher score; ties count half."""
    if not len(better_P):
        return math.nan
    return float(np.mean((better_P > worse_P) + 0.5 * (better_P == worse_P)))


TAUS = {"b": kendall_tau_b, "c": kendall_tau_c}
