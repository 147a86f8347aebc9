"""Measures each metric's agreement with human judgements, as papers on metrics do.

Array suffixes: N is the number of captions, M the number of ratings, P the number of pairs, K the number of repeats.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.evaluation.chosen_metrics import choose
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.human_judgements.agreement_table import ALL, AgreementTable, MetricAgreement
from tellapart.evaluation.human_judgements.judgements import Judgements
from tellapart.evaluation.human_judgements.published_agreement import PUBLISHED
from tellapart.metrics.draws import bootstrap_weights
from tellapart.metrics.metric import Metric
from tellapart.metrics.slots import CaptionSlot
from tellapart.utils.progress import track


def measure_agreement(
    judgements: Judgements,
    metrics: Sequence[str] | None = None,
    *,
    context: EvalContext | None = None,
    resamples: int = 0,
    seed: int = 0,
    repeats: int = 1,
) -> AgreementTable:
    """Measures how well single-caption metrics agree with the judgements.

    Each caption is one row, so CIDEr's document frequencies count a picture once per judged caption, as in the
    published figures. The sign of a metric is flipped if lower values are better.

    metrics: the metrics to measure [default: all available ones].
    context: provides the pictures and a scorer, with one row per caption. If None, only text metrics are measured.
    repeats: how often a judge is asked. A caption's value is the mean over repeats.

    Raises `UsageError` if a requested metric is not available.
    """
    judgements = judgements.with_pairs_of_ratings()
    captions = [row.caption for row in judgements.captions]
    references = [list(row.references) for row in judgements.captions]
    context = context or EvalContext([str(row) for row in range(len(captions))], None, references)
    # Metrics cache results by slot, so each repeat of a judge has its own slot.
    slots = [CaptionSlot(captions, references) for _ in range(repeats)]
    table = AgreementTable(judgements, notes=list(judgements.notes))
    able, left_out = choose(metrics, context)
    chosen = {name: metric for name, metric in able.items() if not metric.pools}
    if metrics is None:  # METEOR runs only on request, but all papers report it
        try:
            chosen |= choose(["meteor"], context)[0]
        except TellapartError as error:
            table.notes.append(f"METEOR is omitted: {error}")
    elif not chosen:
        raise UsageError(f"--metrics contains no metric that scores single captions: {', '.join(metrics)}")
    else:
        table.notes += left_out
    published = PUBLISHED.get(judgements.table or judgements.layout, {})
    absent = dict(published)
    for plain, metric in track(list(chosen.items()), len(chosen), "measuring metrics"):
        value_KN = _values(metric, context, slots)
        if np.isnan(value_KN).all():
            if metrics is not None:
                table.notes.append(f"{plain} does not score single captions and is omitted")
            continue
        tag = metric.tag(context)  # the judge's name and dates
        name = f"{plain}@{tag}" if tag else plain
        agreement = agreement_of_values(mean_over_repeats(value_KN), judgements, resamples, seed)
        if len(value_KN) > 1:
            each = [agreement_of_values(value_N, judgements).reported(judgements.tau) for value_N in value_KN]
            agreement = replace(agreement, repeats=tuple(each), deviation=deviation_over_repeats(value_KN))
        table.metrics[name] = replace(agreement, published=absent.pop(plain, {}).get(judgements.tau))
        table.labels[name] = metric.info(scorer=tag).label
        digest = f"|references:{context.references_digest}" if "references" in metric.needs else ""
        turned = "|turned-round" if metric.direction == "lower" else ""
        rule = f"|{judgements.rule}" if judgements.rule else ""
        table.signatures[name] = (
            f"{name}|{metric.variant(context)}{digest}{turned}|judgements:{judgements.layout}{rule}"
        )
    if printed := [f"{name} {tau[judgements.tau]:.1f}" for name, tau in absent.items() if judgements.tau in tau]:
        table.notes.append(f"published but not measured here (tau-{judgements.tau}): {', '.join(printed)}")
    return table


def _values(metric: Metric, context: EvalContext, slots: Sequence[CaptionSlot]) -> np.ndarray:
    """Returns values K×N, where row k is a judge's k-th repeat (one per slot), or 1×N for a metric without a judge. NaN
    if the metric does not score single captions.
    """
    repeated = len(slots) > 1 and "judge" in metric.needs
    rows = []
    for number, slot in enumerate(slots if repeated else slots[:1], 1):
        if repeated:
            context.loaded_judge.repeat = number  # from 1, because repeat 0 is not sampled
        value_N = metric.of_slot(context, slot).value_N
        rows.append(np.full(len(slot.captions), np.nan) if value_N is None else np.asarray(value_N))
    if repeated:
        context.loaded_judge.repeat = 0
    return np.stack(rows) * (-1 if metric.direction == "lower" else 1)


def mean_over_repeats(value_KN: np.ndarray) -> np.ndarray:
    """Returns each caption's mean over the repeats that the judge answered; NaN if it abstained every time."""
    return np.asarray(np.ma.masked_invalid(value_KN).mean(0).filled(np.nan))


def deviation_over_repeats(value_KN: np.ndarray) -> float:
    """Computes each caption's standard deviation over repeats (with K − 1), and returns their root mean square.

    Skips captions with fewer than two answers. Returns NaN if no caption remains.
    """
    variance_M = np.ma.masked_invalid(value_KN).var(0, ddof=1).compressed()
    return float(np.sqrt(variance_M.mean())) if len(variance_M) else math.nan


def agreement_of_values(
    value_N: np.ndarray, judgements: Judgements, resamples: int = 0, seed: int = 0
) -> MetricAgreement:
    """Computes how well the values of N captions (NaN where unknown) agree with human judgements of these captions.

    resamples: the number of bootstrap resamples of the pictures, each with all its captions, for the interval; 0
        computes no interval.
    """
    row_M = np.repeat(np.arange(len(value_N)), [len(caption.ratings) for caption in judgements.captions])
    rating_M = np.array([rating for caption in judgements.captions for rating in caption.ratings])
    known_M = ~np.isnan(value_N)[row_M]
    row_M, rating_M = row_M[known_M], rating_M[known_M]
    rated = len(row_M) > 1
    pairs_of: dict[str, list[tuple[int, int, bool]]] = defaultdict(list)
    for pair in judgements.pairs:
        pairs_of[pair.category].append((pair.better, pair.worse, pair.tied))
    sides_of = {category: np.array(rows, dtype=int).T for category, rows in pairs_of.items()}

    def accuracies(weight_N: np.ndarray) -> dict[str, float]:
        found = {}
        for category, (better_P, worse_P, tied_P) in sides_of.items():
            better, worse = (np.where(tied_P, 0.0, value_N[side_P]) for side_P in (better_P, worse_P))
            found[category] = 100 * pair_accuracy(better, worse, weight_N[better_P])
        mean = {ALL: float(np.mean(list(found.values())))} if found else {}
        return mean if list(found) == [""] else {**found, **mean}

    whole = MetricAgreement(
        tau_b=100 * kendall_tau(value_N[row_M], rating_M, "b") if rated else None,
        tau_c=100 * kendall_tau(value_N[row_M], rating_M, "c") if rated else None,
        spearman=100 * spearman(value_N[row_M], rating_M) if rated else None,
        accuracy=accuracies(np.ones(len(value_N), int)),
        n=int((~np.isnan(value_N)).sum()),
    )
    if not resamples:
        return whole
    place = {name: k for k, name in enumerate(dict.fromkeys(caption.picture for caption in judgements.captions))}
    picture_N = np.array([place[caption.picture] for caption in judgements.captions])
    values = []
    for weight_RK in bootstrap_weights(len(place), resamples, seed):
        for weight_K in weight_RK:
            weight_N = weight_K[picture_N].astype(int)
            if judgements.tau:
                drawn_D = np.repeat(np.arange(len(row_M)), weight_N[row_M])
                values.append(100 * kendall_tau(value_N[row_M[drawn_D]], rating_M[drawn_D], judgements.tau))
            else:
                values.append(accuracies(weight_N)[ALL])
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return replace(whole, low=float(low), high=float(high))


def pair_accuracy(better_P: np.ndarray, worse_P: np.ndarray, weight_P: np.ndarray) -> float:
    """Computes the share of pairs, 0..1, in which the preferred caption has the higher score; ties count half. Ignores
    pairs with NaN; returns NaN if no pair remains. ``weight_P``: how often each pair counts.
    """
    weight_P = np.where(np.isnan(better_P + worse_P), 0, weight_P)
    right_P = (better_P > worse_P) + 0.5 * (better_P == worse_P)
    return float(right_P @ weight_P / weight_P.sum()) if weight_P.any() else math.nan


def kendall_tau(score_M: np.ndarray, rating_M: np.ndarray, variant: str) -> float:
    """Computes Kendall's tau, -1..1; NaN if all scores or all ratings are equal.

    variant: "b", or "c" (Stuart 1953), which is reported for Flickr8k-Expert and Composite.
    """
    return float(_scipy_stats().kendalltau(score_M, rating_M, variant=variant).statistic)


def spearman(score_M: np.ndarray, rating_M: np.ndarray) -> float:
    """Computes Spearman's rho, -1..1, with mean ranks for ties; NaN if all scores or all ratings are equal."""
    if min(np.ptp(score_M), np.ptp(rating_M)) == 0:
        return math.nan
    return float(_scipy_stats().spearmanr(score_M, rating_M).statistic)


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError:
        raise MissingExtra("study", "the rank correlation with human judgements") from None
    return stats
