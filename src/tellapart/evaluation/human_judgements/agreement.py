"""Measures each metric's agreement with human judgements, as papers on metrics do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tellapart.errors import TellapartError, UsageError
from tellapart.evaluation.chosen_metrics import choose
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.human_judgements.agreement_table import AgreementTable, reported
from tellapart.evaluation.human_judgements.judgements import Judgements
from tellapart.evaluation.human_judgements.published_agreement import PUBLISHED, published_tau
from tellapart.evaluation.human_judgements.value_agreement import agreement_of_values
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
    found = AgreementTable(judgements, notes=list(judgements.notes))
    able, left_out = choose(metrics, context)
    chosen = {name: metric for name, metric in able.items() if not metric.pools}
    found.notes += left_out if metrics is not None else []
    if metrics is None:
        chosen |= _meteor(context, found.notes)
    if metrics is not None and not chosen:
        raise UsageError(f"--metrics contains no metric that scores single captions: {', '.join(metrics)}")
    for name, metric in track(list(chosen.items()), len(chosen), "measuring metrics"):
        value_KN = _repeated_values(metric, context, slots)
        value_N = None if value_KN is None else mean_over_repeats(value_KN)
        tag = metric.tag(context)  # the judge's name and dates
        if value_N is None or np.all(np.isnan(value_N)):
            if metrics is not None:
                found.notes.append(f"{name} does not score single captions and is omitted")
            continue
        name = f"{name}@{tag}" if tag else name
        plain = name.partition("@")[0]
        agreement = agreement_of_values(value_N, judgements, resamples, seed)
        published = published_tau(judgements.table or judgements.layout, plain, judgements.tau)
        found.metrics[name] = replace(agreement, published=published, **_of_repeats(value_KN, judgements))
        found.labels[name] = metric.info(scorer=tag).label
        rule = f"|{judgements.rule}" if judgements.rule else ""
        turned = "|turned-round" if metric.direction == "lower" else ""
        digest = f"|references:{context.references_digest}" if "references" in metric.needs else ""
        found.signatures[name] = (
            f"{name}|{metric.variant(context)}{digest}{turned}|judgements:{judgements.layout}{rule}"
        )
    known = PUBLISHED.get(judgements.table or judgements.layout, {})
    absent = {name: tau for name, tau in known.items() if name not in {key.partition("@")[0] for key in found.metrics}}
    if printed := [f"{name} {tau[judgements.tau]:.1f}" for name, tau in absent.items() if judgements.tau in tau]:
        found.notes.append(f"published but not measured here (tau-{judgements.tau}): {', '.join(printed)}")
    return found


def _repeated_values(metric: Metric, context: EvalContext, slots: Sequence[CaptionSlot]) -> np.ndarray | None:
    """Returns values K×N, where row k is a judge's k-th repeat (one per slot), or 1×N for a metric without a judge."""
    if len(slots) == 1 or "judge" not in metric.needs:
        value_N = _values(metric, context, slots[0])
        return None if value_N is None else value_N[None]
    value_KN = []
    for number, slot in enumerate(slots, 1):  # from 1, because repeat 0 is not sampled
        context.loaded_judge.repeat = number
        if (value_N := _values(metric, context, slot)) is None:
            return None
        value_KN.append(value_N)
    context.loaded_judge.repeat = 0
    return np.stack(value_KN)


def _of_repeats(value_KN: np.ndarray | None, judgements: Judgements) -> dict[str, Any]:
    """Returns the reported number for each repeat, and the deviation of a caption's value over repeats. The result is
    empty if there is only one repeat.
    """
    if value_KN is None or len(value_KN) < 2:
        return {}
    each = [reported(agreement_of_values(value_N, judgements, 0, 0), judgements.tau) for value_N in value_KN]
    return {
        "repeats": tuple(math.nan if value is None else value for value in each),
        "deviation": deviation_over_repeats(value_KN),
    }


def mean_over_repeats(value_KN: np.ndarray) -> np.ndarray:
    """Returns each caption's mean over the repeats that the judge answered; NaN if it abstained every time."""
    return np.asarray(np.ma.masked_invalid(value_KN).mean(0).filled(np.nan))


def deviation_over_repeats(value_KN: np.ndarray) -> float:
    """Computes each caption's standard deviation over repeats (with K − 1), and returns their root mean square.

    Skips captions with fewer than two answers. Returns NaN if no caption remains.
    """
    variance_M = np.ma.masked_invalid(value_KN).var(0, ddof=1).compressed()
    return float(np.sqrt(variance_M.mean())) if len(variance_M) else math.nan


def _meteor(context: EvalContext, notes: list[str]) -> dict[str, Metric]:
    """Returns METEOR, which all papers report. If its files are missing, returns no metric and adds a note."""
    try:
        return choose(["meteor"], context)[0]
    except TellapartError as error:
        notes.append(f"METEOR is omitted: {error}")
        return {}


def _values(metric: Metric, context: EvalContext, slot: CaptionSlot) -> np.ndarray | None:
    value_N = metric.of_slot(context, slot).value_N
    if value_N is None or metric.direction != "lower":
        return value_N
    return -np.asarray(value_N)
