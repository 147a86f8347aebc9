"""Recall@k and mean rank: how often, and how far up, the scorer ranks a caption's own picture among candidates."""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from tellapart.evaluation.candidate_sets import chance, over_questions
from tellapart.evaluation.context import ALL_CLIPS, EvalContext
from tellapart.evaluation.digests import short_digest
from tellapart.evaluation.metrics.em_score import emscore_ranks, emscore_variant
from tellapart.metrics.corpus_scores import PERCENT, Measurement
from tellapart.metrics.metric import ContextMetric
from tellapart.metrics.metric_info import APART
from tellapart.metrics.registry import METRICS, on_request
from tellapart.metrics.slots import CaptionSlot

_AMONG = {
    "lookalike": "{size} look-alikes",
    ALL_CLIPS: "all {size} clips by EMScore’s F",
    "hard": "the {size} pictures in the hard pool",
    "imagecode": "ImageCoDe’s {size} frames",
}
_ALIASES = {
    "recall@1.random100": ("p@1",),  # paper 3: consecutive blocks of 100 in the test set
    "recall@1.random100-shuffled": ("rd100",),  # paper 2: blocks of 100 in a fixed random permutation
}


def recall(k: int, pools: str) -> ContextMetric:
    """Returns the recall@k metric: the percentage of captions for which the scorer ranks the right picture in the top
    k. If the candidates are `ALL_CLIPS`, EMScore's F ranks the clips (paper 1, Table 6).
    """
    clips = pools == ALL_CLIPS
    name, where = f"recall@{k}.{pools}", among(pools)

    def measure(context: EvalContext, slot: CaptionSlot) -> Measurement:
        if clips:
            rank_N = emscore_ranks(context, slot)
            return Measurement(np.where(np.isnan(rank_N), np.nan, slot.said_N * 100.0 * (rank_N < k)))
        found = context.retrieval(slot, pools)
        return Measurement(100 * found.hit(k), weight_N=found.questions_N)

    def signature(context: EvalContext) -> str:
        scorer = context.scorer_name()
        if clips:
            return f"pool:all-clips|match:EMScore-F|{emscore_variant(context)}|ties:hit|scorer:{scorer}"
        return f"{pools_signature(context, pools, scorer)}|ties:hit|scorer:{scorer}"

    few: tuple[str, ...] = (
        ("hundred",) if pools.startswith("random") else ("two", "six") if (k, pools) == (5, "lookalike") else ("two",)
    )
    if clips:
        few = ("clips", "tokens", "two" if k == 1 else "six-clips")
    first = "first" if k == 1 else f"among the first {k}"
    return ContextMetric(
        name=name,
        factory=measure,
        needs=("pictures", "scorer", *few),
        signature=signature,
        label=f"R@{k} among {where}",
        help=f"% of captions for which the scorer ranks the right picture {first} among {where}",
        direction="higher",
        group=APART,
        aliases=_ALIASES.get(name, ()),
        check=on_request if pools.endswith("-shuffled") else None,
        families=("recall", f"recall@{k}", f"r@{k}", *(("truematch",) if k == 1 and pools.startswith("bag") else ())),
        short=f"recall@{k}",
        bounds=PERCENT,
        pools=pools,
        chance=partial(recall_chance, k, pools),
    )


def mean_rank(pools: str) -> ContextMetric:
    """Returns the mean-rank metric: the picture's mean rank among its candidates, where 1 is best."""

    def measure(context: EvalContext, slot: CaptionSlot) -> Measurement:
        found = context.retrieval(slot, pools)
        return Measurement(found.rank_N + 1, weight_N=found.questions_N)

    def signature(context: EvalContext) -> str:
        scorer = context.scorer_name()
        return f"{pools_signature(context, pools, scorer)}|from:1|ties:best|scorer:{scorer}"

    def chance(context: EvalContext) -> np.ndarray:
        sets = context.sets(pools)
        return over_questions(sets, (1 + sets.size_Q) / 2, len(context.ids))

    return ContextMetric(
        name=f"mean_rank.{pools}",
        factory=measure,
        needs=("pictures", "scorer", "two"),
        signature=signature,
        digits=2,
        label=f"mean rank among {among(pools)}",
        help="mean rank of the picture among the candidates; 1 is best",
        direction="lower",
        group=APART,
        families=("meanrank", "truematch") if pools.startswith("bag") else ("meanrank",),
        short="mean_rank",
        bounds=lambda context: (1.0, float(max(map(len, context.sets(pools).sets), default=1))),
        pools=pools,
        chance=chance,
    )


def among(pools: str) -> str:
    """Describes a recall metric's candidates. ``{size}`` stands for their number, unless they are a bag."""
    if random := re.fullmatch(r"random\d+(-shuffled)?", pools):
        return f"{{size}} {'random' if random[1] else 'consecutive'} pictures"
    if bag := re.fullmatch(r"bag(\d+)", pools):
        return f"the {bag[1]} pictures in a bag"
    return _AMONG.get(pools, pools.replace("_", " "))


def recall_chance(k: int, pools: str, context: EvalContext) -> np.ndarray:
    """For each picture, computes the recall@k of a blind guess, in percent."""
    return 100 * chance(context.sets(pools), len(context.ids), k)


def pools_signature(context: EvalContext, pools: str, scorer: str = "") -> str:
    """Describes a metric's candidates. ``scorer``: the scorer that ranks them. The miner of look-alikes is
    named only if it is a different scorer.
    """
    for own in context.inputs.candidates.sets:
        if own.name == pools:
            return f"pools:{pools}x{len(own.sets)}|{own.origin}"
    miner = (context.primary or context).scorer_name()
    more = f"|mined-by:{miner}" if pools == "lookalike" and miner != scorer else ""
    if pools.startswith("random"):
        more = f"|order:{short_digest(context.ids)}"  # the order of the data determines the pools
    return f"pools:{context.sets(pools).name}{more}"


for _pools in ("random100", "random100-shuffled", "lookalike", ALL_CLIPS):
    for _k in (1, 5):
        METRICS.register(recall(_k, _pools))
