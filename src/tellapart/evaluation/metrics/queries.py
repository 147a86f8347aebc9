"""Captions as a search index: how often a text query retrieves its picture's caption from all captions, without looking
at pixels.

Searches with BM25 (Robertson and Zaragoza 2009, in Lucene's form), with a sentence encoder, and, as a baseline that
ignores captions, with the scorer's similarity of query and picture. Equal scores share their ranks, so if two pictures
have the same best caption, each ranks first in half of the cases. BM25 never finds a caption that shares no word with
the query.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.metrics.bm25 import BM25, K1, B, query_words
from tellapart.metrics.corpus_scores import PERCENT, Measurement
from tellapart.metrics.metric_info import APART
from tellapart.metrics.ptb import ptb_tokenize
from tellapart.metrics.ranking import expected_gain, places
from tellapart.metrics.registry import context_metric
from tellapart.metrics.slots import CaptionSlot

QUERIES_PER_BLOCK = 512  # number of queries that are scored at once


def _first(many: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda rank_E: (rank_E <= many).astype(float)


GAINS: dict[str, tuple[str, str, Callable[[np.ndarray], np.ndarray]]] = {
    "r1": ("R@1", "% of queries that rank their picture first", _first(1)),
    "r10": ("R@10", "% of queries that rank their picture among the top ten", _first(10)),
    "mrr": ("MRR", "100 × mean reciprocal rank over the queries", lambda rank_E: 1 / rank_E),
    "ndcg10": (
        "nDCG@10",
        "mean of 100 / log2(1 + rank) over the queries, 0 beyond rank 10",
        lambda rank_E: _first(10)(rank_E) / np.log2(1 + rank_E),
    ),
}


Scores = Callable[[slice], np.ndarray]  # maps a slice of the queries to the scores of all captions, Q×N


def by_bm25(context: EvalContext, slot: CaptionSlot) -> Scores:
    """Scores captions with BM25."""
    index = BM25(slot.captions)
    words = [query_words(text) for text in ptb_tokenize(context.flat_queries[0])]
    return lambda part: np.stack([index.scores(own) for own in words[part]])


def by_encoder(context: EvalContext, slot: CaptionSlot) -> Scores:
    """Scores captions with a sentence encoder."""
    encoder = context.loaded_query_encoder
    query_QD = context.once("queries encoded", lambda: encoder.features(context.flat_queries[0]))
    caption_ND = encoder.features(slot.captions)
    return lambda part: query_QD[part] @ caption_ND.T


def by_scorer(context: EvalContext, slot: CaptionSlot) -> Scores:
    """Scores pictures by the scorer's cosine, ignoring captions."""
    query_QD = context.texts.encode(context.flat_queries[0])
    return lambda part: query_QD[part] @ context.images.T


def search(way: str, gain: str, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes one search metric for each picture: the mean over its queries, × 100. NaN for a picture without queries.

    Pictures are weighted by their number of queries, so that the score is the mean over queries. Intervals resample
    pictures, because the queries of one picture are dependent.
    """
    _, target_Q = context.flat_queries

    def ranks() -> np.ndarray:
        """Returns the rank counts (see `places`) of each query's caption, Q×2."""
        scores = _WAYS[way][0](context, slot)
        parts = [slice(start, start + QUERIES_PER_BLOCK) for start in range(0, len(target_Q), QUERIES_PER_BLOCK)]
        place_Q2 = np.concatenate([places(scores(part), target_Q[part], zero=way == "bm25") for part in parts])
        if way == "encoder":  # never finds empty captions
            empty_N = np.array([not text.strip() for text in slot.captions])
            place_Q2[empty_N[target_Q], 0] = np.inf
        return place_Q2

    place_Q2 = context.once(("search", way, "" if way == "scorer" else id(slot)), ranks)
    value_Q = 100 * expected_gain(GAINS[gain][2], place_Q2)
    count_N = np.bincount(target_Q, minlength=len(slot.captions)).astype(float)
    sum_N = np.bincount(target_Q, value_Q, minlength=len(slot.captions))
    value_N = np.where(count_N > 0, sum_N / np.maximum(count_N, 1), np.nan)
    return Measurement(value_N, weight_N=count_N)


Way = tuple[Callable[[EvalContext, CaptionSlot], Scores], tuple[str, ...], str, Callable[[EvalContext], str]]
_WAYS: dict[str, Way] = {
    "bm25": (by_bm25, (), "queries, BM25", lambda context: f"bm25,lucene,k1:{K1},b:{B}|tok:ptb,words,unstemmed"),
    "encoder": (
        by_encoder,
        ("query_encoder",),
        "queries, sentence encoder",
        lambda context: f"cosine|{context.loaded_query_encoder.signature}",
    ),
    "scorer": (
        by_scorer,
        ("pictures", "scorer"),
        "queries, scorer on the pictures",
        lambda context: f"cosine|no-caption|scorer:{context.scorer_name()}",
    ),
}
for _way, (_scores, _needs, _label, _variant) in _WAYS.items():
    for _gain, (_short, _help, _function) in GAINS.items():
        context_metric(
            f"search_{_way}_{_gain}",
            needs=("queries", *_needs, "two"),
            signature=lambda context, variant=_variant: f"{variant(context)}|ties:expected|{context.queries_digest}",
            label=f"{_short} ({_label})",
            help=f"{_help}; " + ("captions are not used" if _way == "scorer" else "all captions of the system compete"),
            bounds=PERCENT,
            direction="higher",
            group=APART,
            families=("search",),
        )(partial(search, _way, _gain))
