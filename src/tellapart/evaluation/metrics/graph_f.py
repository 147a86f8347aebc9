"""Scene-graph F against references without Java: our own parser's tuples, matched by lemma and by WordNet.

The form is SPICE's (Anderson et al. 2016, section 3): a caption is an object for each noun phrase, (object, attribute)
and (object, relation, object); the references' tuples are merged; F of precision and recall. Parser and numbers are
others than SPICE's, so it has another name. Tuples are those of `tellapart.language.claims`; two match where
word for word they have the same lemma or share a synset of WordNet, read from METEOR's tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.metadata import version

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.facts import check_tagger, verify
from tellapart.language.claims import KINDS, NO_SYNONYMS, Tuple
from tellapart.metrics.meteor_score import Lexicon, find_tables
from tellapart.metrics.meteor_tables import open_tables
from tellapart.metrics.ptb import check
from tellapart.metrics.registry import metric
from tellapart.metrics.results import CLOSE
from tellapart.metrics.statistics import PERCENT
from tellapart.utils.messages import track


def check_parts() -> None:
    """Raises `MissingExtra` where the tagger or METEOR's tables are not installed."""
    check_tagger()
    find_tables()


def _signature(_: EvalContext) -> str:

    tuples = f"objects,attributes,relations|extractor:rules-1,HanTa-{version('HanTa')}"
    return f"f1,mean-of-captions|tuples:{tuples}|match:lemma,wordnet-synset"


@metric(
    "graph_f",
    signature=_signature,
    label="graph F",
    help="objects, attributes and relations shared with the references, synonyms included; not SPICE",
    scale=100.0,
    bounds=PERCENT,
    direction="higher",
    group=CLOSE,
    check=check_parts,
)
def graph_f(captions: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, np.ndarray]:
    """Computes the mean, and each caption's F of scene-graph tuples, 0 to 1; 0 for a caption without a noun.

    Raises `MissingExtra` where the tagger (extra ``words``) or METEOR's tables (extra ``meteor``) are not installed.
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
    return (float(score_N.mean()) if len(score_N) else float("nan")), score_N


def tuples_of(texts: Iterable[str]) -> list[Tuple]:
    """Returns the distinct tuples of some texts: (object,), (object, attribute), (object, relation, object)."""
    facts = verify.facts_of(texts, NO_SYNONYMS)
    return [one for kind in KINDS for one in sorted(facts.of(kind))]


class Synonymy:
    """Tells which tuples mean the same: word for word one lemma, or a synset in common."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._synsets: dict[str, frozenset[int]] = {}

    def words(self, one: str, other: str) -> bool:
        """Returns whether two lemmas are equal or share a synset."""
        return one == other or not self._of(one).isdisjoint(self._of(other))

    def match(self, one: Tuple, other: Tuple) -> bool:
        """Returns whether two tuples of one length match word for word."""
        return len(one) == len(other) and all(map(self.words, one, other))

    def merged(self, tuples: Iterable[Tuple]) -> list[Tuple]:
        """Returns the tuples without those that match an earlier one."""
        kept: list[Tuple] = []
        for one in tuples:
            if not self._in(one, kept):
                kept.append(one)
        return kept

    def f(self, caption: Sequence[Tuple], references: Sequence[Tuple]) -> float:
        """Returns F of the shares of the caption's tuples that the references have, and of theirs that it has."""
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
