"""Rank correlations of a metric with people's ratings, and its accuracy on pairs.

N captions with scores and ratings; suffix P: pairs. Written in sums over the levels of the ratings, because ratings
have few levels: 145,000 judgements take milliseconds.
"""

from __future__ import annotations

import numpy as np

_NONE = float("nan")


def kendall_tau_b(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Kendall's tau-b, -1..1: (C - D) / sqrt of the pairs untied in scores times those untied in ratings.

    NaN where one side has a single value.
    """
    total = _pairs(len(score_N))
    untied = float(total - _tied(score_N)) * float(total - _tied(rating_N))
    return _balance(score_N, rating_N) / untied**0.5 if untied else _NONE


def kendall_tau_c(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Kendall's tau-c (Stuart 1953), -1..1: 2 (C - D) / (N² (m - 1) / m), m the smaller number of distinct values.

    What papers print for Flickr8k-Expert and Composite. NaN where one side has a single value.
    """
    smaller = min(len(np.unique(score_N)), len(np.unique(rating_N)))
    if smaller < 2:
        return _NONE
    return 2 * _balance(score_N, rating_N) / (len(score_N) ** 2 * (smaller - 1) / smaller)


def spearman(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Spearman's rho, -1..1: Pearson's correlation of the ranks, equal values sharing their mean rank."""
    a_N, b_N = (rank_N - rank_N.mean() for rank_N in (_ranks(score_N), _ranks(rating_N)))
    norm = float(np.sqrt((a_N @ a_N) * (b_N @ b_N)))
    return float(a_N @ b_N) / norm if norm else _NONE


def pair_accuracy(better_P: np.ndarray, worse_P: np.ndarray) -> float:
    """The share of pairs, 0..1, in which the caption that people prefer has the higher score; a tie counts half."""
    if not len(better_P):
        return _NONE
    return float(np.mean((better_P > worse_P) + 0.5 * (better_P == worse_P)))


def _balance(score_N: np.ndarray, rating_N: np.ndarray) -> int:
    """Concordant minus discordant pairs."""
    lower, balance = np.zeros(0), 0
    for level in np.unique(rating_N):
        here_M = score_N[rating_N == level]
        below = np.searchsorted(lower, here_M, "left").sum()
        above = (len(lower) - np.searchsorted(lower, here_M, "right")).sum()
        balance += int(below) - int(above)
        lower = np.sort(np.concatenate([lower, here_M]), kind="stable")
    return balance


def _pairs(n: int) -> int:
    return n * (n - 1) // 2


def _tied(value_N: np.ndarray) -> int:
    return sum(_pairs(int(count)) for count in np.unique(value_N, return_counts=True)[1])


def _ranks(value_N: np.ndarray) -> np.ndarray:
    _, place_N, count_U = np.unique(value_N, return_inverse=True, return_counts=True)
    last_U = np.cumsum(count_U)
    mean_U: np.ndarray = last_U - (count_U - 1) / 2
    return mean_U[place_N]
