"""Agreement with references: BLEU, ROUGE-L, CIDEr, METEOR, SPICE and SPIDEr, ×100 as the papers print them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tellapart.evaluation.registry import METRICS, Metric, Signature
from tellapart.metrics import cider, overlap
from tellapart.metrics.ngrams import ORDERS
from tellapart.metrics.resampling import Statistic
from tellapart.metrics.results import CLOSE
from tellapart.metrics.significance import PERCENT

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
    from tellapart.metrics.spider_score import spider

    return spider(captions, references)


def spider_signature(context: object) -> str:
    """The variant of SPIDEr."""
    from tellapart.metrics.spider_score import SPIDER_SIGNATURE

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
