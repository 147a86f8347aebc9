"""The agreement of a metric's values with human judgements: correlations, accuracy on pairs, and an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tellapart.evaluation.human_judgements.agreement_table import ALL, MetricAgreement
from tellapart.evaluation.human_judgements.correlations import (
    TAUS,
    kendall_tau_b,
    kendall_tau_c,
    pair_accuracy,
    spearman,
)
from tellapart.evaluation.human_judgements.judgements import Judgements
from tellapart.metrics.draws import bootstrap_weights


def agreement_of_values(value_N: np.ndarray, judgements: Judgements, resamples: int, seed: int) -> MetricAgreement:
    """Computes how well the values of N captions (NaN where unknown) agree with human judgements of these captions.

    resamples: the number of bootstrap resamples for the interval; 0 computes no interval.
    """
    known_N = ~np.isnan(value_N)
    rating_of = [np.array(caption.ratings) for caption in judgements.captions]
    times_N = np.array([len(ratings) for ratings in rating_of])

    def taus(repeat_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the scores and ratings of the captions that have a value. Caption n is repeated ``repeat_N[n]``
        times.
        """
        take_N = np.flatnonzero(known_N & (times_N > 0))
        take_M = np.repeat(take_N, repeat_N[take_N])
        if not len(take_M):
            return np.zeros(0), np.zeros(0)
        return np.repeat(value_N[take_M], times_N[take_M]), np.concatenate([rating_of[row] for row in take_M])

    scores, ratings = taus(np.ones(len(value_N), int))
    rated = bool(judgements.ratings) and len(scores) > 1
    whole = MetricAgreement(
        tau_b=100 * kendall_tau_b(scores, ratings) if rated else None,
        tau_c=100 * kendall_tau_c(scores, ratings) if rated else None,
        spearman=100 * spearman(scores, ratings) if rated else None,
        accuracy=_accuracies(value_N, judgements),
        n=int(known_N.sum()),
    )
    if not resamples:
        return whole

    def printed(repeat_N: np.ndarray) -> float:
        if judgements.tau:
            return 100 * TAUS[judgements.tau](*taus(repeat_N))
        return _accuracies(value_N, judgements, repeat_N)[ALL]

    low, high = _interval(judgements, printed, resamples, seed)
    return replace(whole, low=low, high=high)


def _accuracies(value_N: np.ndarray, judgements: Judgements, repeat_N: np.ndarray | None = None) -> dict[str, float]:
    """Returns the accuracy in percent for each category, followed by the mean over categories. Ignores pairs in which a
    caption has no value.
    """
    found: dict[str, float] = {}
    for category in dict.fromkeys(pair.category for pair in judgements.pairs):
        rows = [pair for pair in judgements.pairs if pair.category == category]
        better = np.array([value_N[pair.better] for pair in rows])
        worse = np.array([value_N[pair.worse] for pair in rows])
        tied = np.array([pair.tied for pair in rows])
        better, worse = np.where(tied, 0.0, better), np.where(tied, 0.0, worse)
        keep = np.flatnonzero(~np.isnan(better + worse))
        if repeat_N is not None:
            keep = np.repeat(keep, [repeat_N[rows[place].better] for place in keep])
        found[category] = 100 * pair_accuracy(better[keep], worse[keep])
    if not found:
        return {}
    mean = float(np.mean(list(found.values())))
    return {ALL: mean} if list(found) == [""] else {**found, ALL: mean}


def _interval(
    judgements: Judgements, statistic: Callable[[np.ndarray], float], resamples: int, seed: int
) -> tuple[float, float]:
    """Computes the interval by resampling pictures, each together with all its captions."""
    names = list(dict.fromkeys(caption.picture for caption in judgements.captions))
    place = {name: number for number, name in enumerate(names)}
    picture_N = np.array([place[caption.picture] for caption in judgements.captions])
    values = [
        statistic(weight_K[picture_N].astype(int))
        for weight_RK in bootstrap_weights(len(names), resamples, seed)
        for weight_K in weight_RK
    ]
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return float(low), float(high)
