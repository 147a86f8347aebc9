"""Best-of-n reranking and scorer-weighted MBR decoding over sampled captions, without training.

`BestOf` keeps the caption from which the scorer can best identify the picture (``--best-of``), or the caption with the
highest sum of this score and its agreement with the other samples (``--consensus --scorer``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.consensus import consensus
from tellapart.captioners.generated_captions import generate_captions
from tellapart.data import Dataset
from tellapart.features.nearest import Exclusions, Vectors, nearest_among
from tellapart.features.store import FeatureStore
from tellapart.models.decoding import Decoding
from tellapart.scorers.base import Scorer
from tellapart.types import Item, Rows
from tellapart.utils.blocks import blocks_of
from tellapart.utils.rng import ItemSeeds

RANKED = 100  # number of pictures in a scoring batch
DISTRACTORS = 99  # together with the picture itself, a set of 100, as in the papers' evaluation


@dataclass(frozen=True, eq=False)
class BestOf:
    """Ranks sampled captions by how well the scorer can use them to find their picture among its look-alikes.

    places: maps the id of each readable picture to its row in ``vectors``.
    near: maps a picture's row to the rows of its look-alikes.
    """

    scorer: Scorer
    places: dict[str, int]
    vectors: Vectors
    near: Mapping[int, np.ndarray]

    @classmethod
    def among(
        cls,
        dataset: Dataset,
        scorer: Scorer,
        store: FeatureStore | None,
        *,
        wanted: Sequence[str] | None = None,
        distractors: int = DISTRACTORS,
        progress: bool = True,
    ) -> BestOf:
        """Encodes the pictures and finds their look-alikes, which are the ``distractors`` nearest pictures in the whole
        data set.

        Distances are between the scorer's image features (`tellapart.features.nearest` describes how ties are broken).
        One blockwise search finds the look-alikes of all pictures whose ids are in ``wanted``, or of all pictures if it
        is None.
        """

        store = store or FeatureStore()
        encoder = scorer.encoder
        kept = store.readable(dataset, encoder, skipped=dataset.unreadable, progress=progress)
        image_ND = np.asarray(store.features(kept, encoder, progress=progress)) if kept else np.zeros((0, 1), "f4")
        ids = [item.id for item in kept]
        return cls.of_features(scorer, ids, image_ND, wanted=wanted, distractors=distractors, progress=progress)

    @classmethod
    def of_features(
        cls,
        scorer: Scorer,
        ids: Sequence[str],
        image_ND: np.ndarray,
        *,
        wanted: Sequence[str] | None = None,
        distractors: int = DISTRACTORS,
        progress: bool = True,
    ) -> BestOf:
        """Does the same as `among`, but takes the scorer's image features, N×D. ``ids`` are in the order of the
        rows.
        """

        places = {id_: place for place, id_ in enumerate(ids)}
        gallery = Vectors.of(image_ND)
        chosen = places if wanted is None else [id_ for id_ in wanted if id_ in places]
        row_W = np.array([places[id_] for id_ in chosen], dtype=np.intp)
        label = "look-alikes" if progress else None
        itself, count = Exclusions(row_W, np.arange(len(gallery))), min(distractors, max(len(ids) - 1, 0))
        near_WK = nearest_among(gallery.take(row_W), gallery, count, itself, label=label).rows_NK
        return cls(scorer, places, gallery, dict(zip(row_W.tolist(), near_WK, strict=True)))

    def rank(self, items: Sequence[Item], groups: Sequence[Sequence[str]]) -> list[tuple[tuple[str, float], ...]]:
        """Returns each item's captions with their scores in nats, best first. Captions with equal scores keep their
        order.
        """
        return [
            tuple(sorted(zip(group, row.tolist(), strict=True), key=lambda pair: -pair[1]))
            for group, row in zip(groups, self._scores(items, groups), strict=True)
        ]

    def consensus(self, items: Sequence[Item], groups: Sequence[Sequence[str]], weight: float) -> list[str]:
        """For each item, returns the sample with the highest agreement (0 to 5) + ``weight`` × score (in nats).

        `tellapart.captioners.consensus` computes the agreement. On a tie, the first sample wins.
        """

        scores_BS = self._scores(items, groups).double().numpy()
        return [consensus(group, weight * row_S) for group, row_S in zip(groups, scores_BS, strict=True)]

    def _scores(self, items: Sequence[Item], groups: Sequence[Sequence[str]]) -> torch.Tensor:
        """Returns scores_BS: for each picture and each of its S captions, the log-probability, in nats, of the picture
        among its look-alikes given the caption.
        """
        sets_BKD = self._sets([self.places[item.id] for item in items])
        texts = [text for group in groups for text in group]
        row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}  # samples often repeat
        text_UD = self.scorer.text_features(list(row_of)).cpu().float()
        text_BSD = text_UD[[row_of[text] for text in texts]].reshape(len(items), -1, text_UD.shape[-1])
        score_BSK = self.scorer.scale * torch.einsum("bsd,bkd->bsk", text_BSD, sets_BKD)
        # A data set with a single picture has no distractors, so captions are ranked by similarity.
        return score_BSK.log_softmax(-1)[..., 0] if sets_BKD.shape[1] > 1 else score_BSK[..., 0]

    def _sets(self, rows: Sequence[int]) -> torch.Tensor:
        """Returns sets_BKD: each picture's features, followed by those of its nearest neighbours."""
        near_BK = np.stack([self.near[row] for row in rows])
        row_BK = np.concatenate([np.array(rows)[:, None], near_BK], axis=1)
        return torch.from_numpy(self.vectors.given_ND[row_BK])


def chosen_captions(
    captioner: Captioner,
    visual: torch.Tensor | Rows,
    decoding: Decoding,
    items: Sequence[Item],
    chooser: BestOf,
    seeds: ItemSeeds | None = None,
) -> list[str]:
    """Captions ``items`` from their features, N×…, with MBR decoding weighted by the scorer in ``chooser``."""

    texts = generate_captions(captioner, visual, decoding.drawn, seeds=seeds)
    groups = [*blocks_of(texts, decoding.drawn.samples)]
    chosen: list[str] = []
    for start in range(0, len(items), RANKED):
        some = slice(start, start + RANKED)
        chosen += chooser.consensus(items[some], groups[some], decoding.scorer_weight)
    return chosen
