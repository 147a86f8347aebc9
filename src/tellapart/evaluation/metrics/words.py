"""The words of captions: length, diversity, vocabulary, repetition."""

from __future__ import annotations

from tellapart.evaluation.registry import METRICS, Metric
from tellapart.metrics import lexical
from tellapart.metrics.results import LANGUAGE
from tellapart.metrics.significance import PERCENT

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
