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
from functools import lru_cache
from importlib.metadata import version

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.facts import by_references, check_tagger
from tellapart.language.claim_tuples import CLAIM_KINDS, NO_SYNONYMS, Tuple
from tellapart.metrics.corpus_scores import PERCENT
from tellapart.metrics.inputs import check, with_mean
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

    tuples = f"objects,attributes,relations|extractor:rules-1,HanTa-{version('HanTa')}"
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
    same = Synonymy(Lexicon(open_tables()))
    of_references = lru_cache(maxsize=None)(lambda texts: same.merged(tuples_of(texts)))
    pairs = list(zip(captions, references, strict=True))
    score_N = np.array(
        [
            same.f(same.merged(tuples_of([caption])), of_references(tuple(own)))
            for caption, own in track(pairs, label="scene graphs")
        ]
    )
    return with_mean(score_N)


def tuples_of(texts: Iterable[str]) -> list[Tuple]:
    """Returns the distinct tuples in the given texts: (object,), (object, attribute), (object, relation, object)."""
    facts = by_references.facts_of(texts, NO_SYNONYMS)
    return [one for kind in CLAIM_KINDS for one in sorted(facts.of(kind))]


class Synonymy:
    """Decides whether tuples are synonymous, that is, whether each pair of words has the same lemma or shares a
    synset.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._synsets: dict[str, frozenset[int]] = {}

    def words(self, one: str, other: str) -> bool:
        """Returns whether two lemmas are equal or share a synset."""
        return one == other or not self._of(one).isdisjoint(self._of(other))

    def match(self, one: Tuple, other: Tuple) -> bool:
        """Returns whether two tuples of equal length match word for word."""
        return len(one) == len(other) and all(map(self.words, one, other))

    def merged(self, tuples: Iterable[Tuple]) -> list[Tuple]:
        """Returns the tuples after dropping each tuple that matches an earlier one."""
        kept: list[Tuple] = []
        for one in tuples:
            if not self._in(one, kept):
                kept.append(one)
        return kept

    def f(self, caption: Sequence[Tuple], references: Sequence[Tuple]) -> float:
        """Computes F from precision (share of the caption's tuples found in the references) and recall (share of the
        references' tuples found in the caption).
        """
        right = sum(self._in(one, references) for one in caption)
        said = sum(self._in(one, caption) for one in references)
        if not right or not said:
            return 0.0
        precision, recall = right / len(caption), said / len(references)
        return 2 * precision * recall / (precision + recall)

    def _in(self, one: Tuple, others: Sequence[Tuple]) -> bool:
        return any(self.match(one, other) for other in others)

    def _of(self, word: str) -> frozenset[int]:
        if word not in self._synsets:
            ((number,),) = self._lexicon.numbers([[word]])
            self._synsets[word] = self._lexicon.synsets[number]
        return self._synsets[word]
