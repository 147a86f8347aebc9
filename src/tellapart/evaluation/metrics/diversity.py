"""Diversity of several captions of a picture: Div-1, Div-2 and mBLEU, 0 to 1 as paper 4 prints them."""

from __future__ import annotations

from tellapart.evaluation.registry import METRICS, CaptionSetMetric
from tellapart.evaluation.slots import Corpus
from tellapart.metrics.diversity import DIV_SIGNATURE, MBLEU_SIGNATURE, div1, div2, mbleu, mbleu_counts, mbleu_of_counts
from tellapart.metrics.results import LANGUAGE


def mbleu_rows(caption_lists: list[list[str]]) -> Corpus:
    """What mBLEU's corpus number is made of."""
    return Corpus(list(mbleu_counts(caption_lists)), mbleu_of_counts)


METRICS.register(
    CaptionSetMetric(
        name="div1",
        factory=div1,
        needs=("several",),
        signature=DIV_SIGNATURE,
        digits=2,
        label="Div-1",
        help="distinct words over all words in the captions of a picture",
        direction="higher",
        group=LANGUAGE,
        families=("div",),
    )
)
METRICS.register(
    CaptionSetMetric(
        name="div2",
        factory=div2,
        needs=("several",),
        signature=DIV_SIGNATURE,
        digits=2,
        label="Div-2",
        help="distinct pairs of words over all words in the captions of a picture",
        direction="higher",
        group=LANGUAGE,
        families=("div",),
    )
)
METRICS.register(
    CaptionSetMetric(
        name="mbleu",
        factory=mbleu,
        corpus_rows=mbleu_rows,
        needs=("several",),
        signature=MBLEU_SIGNATURE,
        digits=2,
        label="mBLEU",
        help="BLEU-4 of each caption of a picture against its others",
        direction="lower",
        group=LANGUAGE,
        aliases=("selfbleu",),
    )
)
