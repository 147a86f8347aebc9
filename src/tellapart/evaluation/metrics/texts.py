"""The words of captions: length, diversity, vocabulary, repetition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tellapart.evaluation.context import Corpus
from tellapart.evaluation.registry import METRICS, CaptionSetMetric, Metric, Signature
from tellapart.metrics import cider, lexical, overlap
from tellapart.metrics.diversity import DIV_SIGNATURE, MBLEU_SIGNATURE, div1, div2, mbleu, mbleu_counts, mbleu_of_counts
from tellapart.metrics.ngrams import ORDERS
from tellapart.metrics.results import CLOSE, LANGUAGE
from tellapart.metrics.statistics import PERCENT, Statistic

# Agreement with references: BLEU, ROUGE-L, CIDEr, METEOR, SPICE and SPIDEr, ×100 as the papers print them.

References = Sequence[Sequence[str]]
Scores = tuple[float, np.ndarray]

_SPANS = ("words", *(f"word sequences, up to {longest} long," for longest in ("two", "three", "four")))


# METEOR and SPICE are imported when they are named: their modules take longer than a short evaluation.
def meteor(captions: Sequence[str], references: References) -> Scores:
    """METEOR 1.5 (`tellapart.metrics.meteor`)."""
    from tellapart.metrics.meteor_score import meteor

    return meteor(captions, references)


def meteor_statistic(captions: Sequence[str], references: References) -> Statistic:
    """The corpus number of METEOR as a function of the captions' weights."""
    from tellapart.metrics.meteor_score import meteor_statistic

    return meteor_statistic(captions, references)


def meteor_signature(context: object) -> str:
    """The variant of METEOR."""
    from tellapart.metrics.meteor_score import METEOR_SIGNATURE

    return METEOR_SIGNATURE


def find_meteor_tables() -> None:
    """Raises `UsageError` where METEOR's tables are missing."""
    from tellapart.metrics.meteor_score import find_tables

    find_tables()


def spice(captions: Sequence[str], references: References) -> Scores:
    """SPICE through the real tool (`tellapart.metrics.spice`)."""
    from tellapart.metrics.spice_tool import spice

    return spice(captions, references)


def spice_statistic(captions: Sequence[str], references: References) -> Statistic:
    """SPICE's mean as a function of the captions' weights."""
    from tellapart.metrics.spice_tool import spice_statistic

    return spice_statistic(captions, references)


def spice_signature(context: object) -> str:
    """The variant of SPICE."""
    from tellapart.metrics.spice_tool import SPICE_SIGNATURE

    return SPICE_SIGNATURE


def find_spice() -> object:
    """Raises `UsageError` where Java 8 or SPICE's files are missing."""
    from tellapart.metrics.spice_tool import find_tool

    return find_tool()


def spider(captions: Sequence[str], references: References) -> Scores:
    """SPIDEr, the mean of SPICE and CIDEr-D (`tellapart.metrics.spider`)."""
    from tellapart.metrics.spice_tool import spider

    return spider(captions, references)


def spider_signature(context: object) -> str:
    """The variant of SPIDEr."""
    from tellapart.metrics.spice_tool import SPIDER_SIGNATURE

    return SPIDER_SIGNATURE


def _register(
    name: str, factory: Callable[..., Scores], signature: str | Signature, label: str, help: str, **more: Any
) -> None:
    METRICS.register(
        Metric(
            name=name,
            factory=factory,
            signature=signature,
            label=label,
            help=help,
            scale=100.0,
            direction="higher",
            group=CLOSE,
            **{"bounds": PERCENT, **more},
        )
    )


for _n in range(1, ORDERS + 1):
    _register(
        f"bleu{_n}",
        partial(overlap.bleu, n=_n),
        overlap.BLEU_SIGNATURE,
        f"BLEU-{_n}",
        f"{_SPANS[_n - 1]} shared with the references",
        statistic=partial(overlap.bleu_statistic, n=_n),
        aliases=(f"b@{_n}", f"b{_n}"),
        families=("bleu",),
    )
_register(
    "rouge_l",
    overlap.rouge_l,
    overlap.ROUGE_SIGNATURE,
    "ROUGE-L",
    "longest common word sequence with the references",
    aliases=("rouge",),
)
_register(
    "cider",
    cider.cider_d,
    cider.CIDER_D_SIGNATURE,
    "CIDEr",
    "agreement with the references (CIDEr-D), rare words weighing more",
    aliases=("ciderd",),
    bounds=(0.0, 1000.0),
)
_register(
    "cider_plain",
    cider.cider_plain,
    cider.CIDER_SIGNATURE,
    "CIDEr, plain",
    "as CIDEr, without clipping and length penalty",
    bounds=(0.0, 1000.0),
)
_register(
    "meteor",
    meteor,
    meteor_signature,
    "METEOR",
    "words matched with the references, stems and synonyms included",
    statistic=meteor_statistic,
    check=find_meteor_tables,
)
_register(
    "spice",
    spice,
    spice_signature,
    "SPICE",
    "objects, attributes and relations shared with the references",
    statistic=spice_statistic,
    check=find_spice,
)
_register("spider", spider, spider_signature, "SPIDEr", "mean of SPICE and CIDEr-D", check=find_spice)


# Diversity of several captions of a picture: Div-1, Div-2 and mBLEU, 0 to 1 as paper 4 prints them.


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


METRICS.register(
    Metric(
        name="length",
        factory=lexical.length,
        signature="words:punctuation-stripped",
        label="length",
        help="words per caption",
        group=LANGUAGE,
        aliases=("captionlength", "avglength"),
    )
)
METRICS.register(
    Metric(
        name="lexical_diversity",
        factory=lexical.lexical_diversity,
        statistic=lexical.lexical_diversity_statistic,
        signature="distinct/1000|words:punctuation-stripped,case-kept",
        digits=2,
        label="lexical diversity",
        help="distinct words in all captions together, in thousands",
        direction="higher",
        group=LANGUAGE,
        aliases=("lexdiversity", "lexicaldiv"),
    )
)
METRICS.register(
    Metric(
        name="vocabulary",
        factory=lexical.vocabulary,
        statistic=lexical.vocabulary_statistic,
        signature="frequency>=5|words:punctuation-stripped,lower-case",
        digits=0,
        label="vocabulary",
        help="distinct words that are used at least five times",
        group=LANGUAGE,
        aliases=("vocab", "vocabularysize"),
    )
)
METRICS.register(
    Metric(
        name="repetition_rate",
        factory=lexical.repetition_rate,
        signature="percent-of-words|runs:adjacent,6+,unseparated",
        bounds=PERCENT,
        digits=2,
        label="repetition",
        help="per cent of words that repeat earlier words of the caption",
        direction="lower",
        group=LANGUAGE,
        aliases=("repetition", "rep"),
    )
)
