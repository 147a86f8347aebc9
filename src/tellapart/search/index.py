"""Picture search: BM25 over the captions and a scorer over the pictures, combined by reciprocal rank fusion.

Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009) sums 1 / (60 + rank) over both rankings. A picture whose
caption contains no word of the query has no caption rank; ties share their best rank. Articles, prepositions and other
function words of the query are ignored, unless it contains no other words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tellapart.captions.store import StoredCaption
from tellapart.data import Dataset
from tellapart.features.store import FeatureStore
from tellapart.language.english_words import FUNCTION_WORDS, word_set
from tellapart.metrics.bm25 import BM25, query_words
from tellapart.metrics.corpus_scores import PERCENT
from tellapart.metrics.intervals import Interval, mean_interval
from tellapart.metrics.ptb import ptb_tokenize
from tellapart.metrics.ranking import expected_gain, places
from tellapart.scorers.base import Scorer
from tellapart.types import Item

FUSION = 60  # k of reciprocal rank fusion
RECALLS = (1, 5, 10)
IGNORED = FUNCTION_WORDS - word_set("one two three four")


@dataclass(frozen=True)
class Hit:
    """One search result. ``by_caption`` and ``by_picture``: its ranks, counting from 1, or None if it has no rank."""

    id: str
    caption: str
    score: float
    by_caption: int | None
    by_picture: int | None
    bm25: float
    cosine: float | None

    @property
    def reasons(self) -> str:
        """Describes the ranks in a few words."""
        by_caption = f"caption {self.by_caption}" if self.by_caption is not None else "not found by its caption"
        return by_caption if self.by_picture is None else f"{by_caption}, picture {self.by_picture}"


@dataclass(frozen=True)
class SearchFigures:
    """Retrieval metrics in percent, by method (captions, pictures, both) and metric.

    ``ranks``: by method, the rank of each query's picture, starting at 1; ties share their best rank. None if the query
    does not find the picture.
    """

    queries: int
    pictures: int
    values: Mapping[str, Mapping[str, Interval]] = field(default_factory=dict)
    ranks: Mapping[str, Sequence[int | None]] = field(default_factory=dict)


class SearchIndex:
    """Index of the captions of some pictures and, if there is a scorer, of their features."""

    def __init__(
        self, items: Sequence[Item], texts: Sequence[str], scorer: Scorer | None = None,
        image_ND: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.items, self.texts = list(items), list(texts)
        self._captions = BM25(self.texts)
        self._scorer, self._image_ND = scorer, image_ND

    @classmethod
    def build(
        cls, dataset: Dataset, captions: Mapping[str, StoredCaption], scorer: Scorer | None = None
    ) -> SearchIndex:
        """Indexes the captions, including texts in other languages, and encodes the pictures if there is a scorer.

        Features are cached in the feature store. Unreadable pictures are skipped, and the data set reports them.
        """
        items, image_ND = list(dataset), None
        if scorer is not None:
            store = FeatureStore()
            items = store.readable(items, scorer.encoder, skipped=dataset.unreadable)
            image_ND = np.asarray(store.features(items, scorer.encoder)) if items else np.zeros((0, 1), np.float32)
        texts = ["\n".join([captions[item.id].text, *captions[item.id].texts.values()]) for item in items]
        return cls(items, texts, scorer, image_ND)

    def scores(self, queries: Sequence[str]) -> dict[str, np.ndarray]:
        """Scores N pictures for Q queries. Returns scores_QN by method. Higher is better.

        The methods are ``captions`` (BM25, at least 0) and, if there is a scorer, ``pictures`` (cosine) and ``both``
        (the sum of 1 / (60 + rank) over the two rankings).
        """
        words = [_content_words(query_words(text)) for text in ptb_tokenize(queries)]
        bm25_QN = np.stack([self._captions.scores(own) for own in words])
        if self._scorer is None or self._image_ND is None:
            return {"captions": bm25_QN}
        cosine_QN = self._scorer.text_features(list(queries)).cpu().float().numpy() @ self._image_ND.T
        fused_QN = sum(np.where(np.isfinite(rank_QN), 1 / (FUSION + rank_QN), 0.0)
                       for rank_QN in (_ranks(bm25_QN, zero=True), _ranks(cosine_QN, zero=False)))  # fmt: skip
        return {"captions": bm25_QN, "pictures": cosine_QN, "both": np.asarray(fused_QN)}

    def search(self, query: str, count: int = 10) -> list[Hit]:
        """Returns the ``count`` best pictures for a query, best first. Omits pictures that do not match at all."""
        scores = self.scores([query])
        best_N = scores.get("both", scores["captions"])[0]
        rank_N = _ranks(scores["captions"], zero=True)[0]
        cosine_N = scores["pictures"][0] if "pictures" in scores else None
        picture_N = None if cosine_N is None else _ranks(cosine_N[None], zero=False)[0]
        order = [place for place in np.argsort(-best_N, kind="stable")[:count] if best_N[place] > 0]
        return [
            Hit(
                self.items[place].id,
                self.texts[place].split("\n")[0],
                float(best_N[place]),
                int(rank_N[place]) if np.isfinite(rank_N[place]) else None,
                None if picture_N is None else int(picture_N[place]),
                float(scores["captions"][0, place]),
                None if cosine_N is None else float(cosine_N[place]),
            )
            for place in order
        ]

    def measure(self, queries: Sequence[tuple[str, str]]) -> SearchFigures:
        """Computes R@k and MRR, with 95% intervals, for pairs of a query and the id of its target picture.

        The bootstrap resamples pictures, because queries for the same picture are not independent.
        """
        places_of = {item.id: place for place, item in enumerate(self.items)}
        target_Q = np.array([places_of[id_] for _, id_ in queries])
        values: dict[str, dict[str, Interval]] = {}
        ranks: dict[str, list[int | None]] = {}
        for way, score_QN in self.scores([text for text, _ in queries]).items():
            place_Q2 = places(score_QN, target_Q, zero=way == "captions")
            ranks[way] = [int(better) + 1 if np.isfinite(better) else None for better, _ in place_Q2]
            gains = {f"R@{k}": expected_gain(lambda rank_E, k=k: (rank_E <= k) * 1.0, place_Q2) for k in RECALLS}  # type: ignore[misc]
            gains["MRR"] = expected_gain(lambda rank_E: 1 / rank_E, place_Q2)
            values[way] = {
                name: mean_interval(100 * gain_Q, unit_N=target_Q, bounds=PERCENT) for name, gain_Q in gains.items()
            }
        return SearchFigures(len(queries), len(self.items), values, ranks)


def _content_words(words: Sequence[str]) -> Sequence[str]:
    return [word for word in words if word not in IGNORED] or words


def _ranks(score_QN: np.ndarray, *, zero: bool) -> np.ndarray:
    """Returns ranks Q×N, counting from 1; ties share their best rank. ``zero``: scores of 0 get no rank (inf)."""
    rank_QN = np.empty(score_QN.shape)
    for q, score_N in enumerate(score_QN):
        descending = np.sort(score_N)[::-1]
        rank_QN[q] = 1 + np.searchsorted(-descending, -score_N, side="left")
    return np.where(score_QN > 0, rank_QN, np.inf) if zero else rank_QN
