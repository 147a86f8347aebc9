"""Scene-graph F-score against references, without Java. Our own parser extracts tuples, which are matched by lemma and
by WordNet synset.

The metric has the form of SPICE (Anderson et al. 2016, section 3): a caption becomes tuples, (object) for each noun
phrase, (object, attribute) and (object, relation, object); the references' tuples are merged; the score is F of
precision and recall. The parser (`tellapart.language.claims`), and hence the scores, differ from SPICE's, so the metric
has its own name. Two tuples match if, word for word, they have the same lemma or share a WordNet synset. Synsets come
from METEOR's tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.facts import check_tagger, claim_extractor
from tellapart.language.claim_tuples import claims_in
from tellapart.metrics.corpus_scores import PERCENT, with_mean
from tellapart.metrics.inputs import check
from tellapart.metrics.meteor_score import Lexicon, find_tables
from tellapart.metrics.meteor_tables import open_tables
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.registry import metric
from tellapart.utils.progress import track


def check_parts() -> None:
    """Raises `MissingExtra` if the tagger or METEOR's tables are not installed."""
    check_tagger()
    find_tables()


def _signature(_: EvalContext) -> str:

    tuples = f"objects,attributes,relations|extractor:{claim_extractor()}"
    return f"f1,mean-of-captions|tuples:{tuples}|match:lemma,wordnet-synset"


@metric(
    "graph_f",
    signature=_signature,
    label="graph F",
    help="F1 of the objects, attributes and relations shared with the references, including synonyms; not SPICE",
    scale=100.0,
    bounds=PERCENT,
    direction="higher",
    group=CLOSE,
    check=check_parts,
)
def graph_f(captions: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, np.ndarray]:
    """Computes the F1 of scene-graph tuples, 0 to 1, and returns the mean and each caption's value. A caption without a
    noun scores 0.

    Raises `MissingExtra` if the tagger (extra ``words``) or METEOR's tables (extra ``meteor``) are not installed.
    """
    check_parts()
    check(captions, references)
    lexicon = Lexicon(open_tables())

    @cache
    def synsets(word: str) -> frozenset[int]:
        ((number,),) = lexicon.numbers([[word]])
        return lexicon.synsets[number]

    def among(one: tuple[str, ...], others: Iterable[tuple[str, ...]]) -> bool:
        """Returns whether a tuple matches any of the others: each pair of words is equal or shares a synset."""
        return any(
            len(one) == len(other)
            and all(a == b or not synsets(a).isdisjoint(synsets(b)) for a, b in zip(one, other, strict=True))
            for other in others
        )

    @cache
    def tuples_of(texts: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Returns the distinct tuples in the given texts: (object,), (object, attribute), (object, relation, object).
        Drops each tuple that matches an earlier one.
        """
        kept: list[tuple[str, ...]] = []
        for _, words in claims_in(texts):
            kept += [] if among(words, kept) else [words]
        return kept

    score_N = np.zeros(len(captions))
    for n, caption in enumerate(track(captions, len(captions), "scene graphs")):
        made, known = tuples_of((caption,)), tuples_of(tuple(references[n]))
        right, said = sum(among(one, known) for one in made), sum(among(one, made) for one in known)
        if right and said:
            precision, recall = right / len(made), said / len(known)
            score_N[n] = 2 * precision * recall / (precision + recall)
    return with_mean(score_N)
