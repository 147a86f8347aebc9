"""Of several captions of a picture the one that tells it apart best, by a scorer: no training needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tellapart.data import Dataset
from tellapart.types import Item

if TYPE_CHECKING:
    import numpy as np
    import torch

    from tellapart.features.nearest import Vectors
    from tellapart.features.store import FeatureStore
    from tellapart.scorers.base import Scorer

DISTRACTORS = 99  # with the picture itself a set of a hundred, as the papers evaluate


class BestOf:
    """Ranks sampled captions by how well the scorer finds their picture among its look-alikes.

    ``places``: id to row of ``vectors``, of the pictures that can be read. ``near``: row to the rows of a picture's
    look-alikes.
    """

    def __init__(
        self, scorer: Scorer, places: dict[str, int], vectors: Vectors, near: Mapping[int, np.ndarray]
    ) -> None:
        self._scorer, self.places, self._vectors, self._near = scorer, places, vectors, near

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
        """Encode the pictures and find their look-alikes: the ``distractors`` nearest in the whole data set.

        Nearest by the scorer's image features (ties: `tellapart.features.nearest`). Those of the ``wanted`` pictures
        (ids; None: all) are found by one search, in blocks.
        """
        import numpy as np

        from tellapart.features.nearest import Exclusions, Vectors, nearest_among
        from tellapart.features.store import FeatureStore

        store = store or FeatureStore()
        encoder = scorer.encoder
        kept = store.readable(dataset, encoder, skipped=dataset.unreadable, progress=progress)
        places = {item.id: place for place, item in enumerate(kept)}
        image_ND = np.asarray(store.features(kept, encoder, progress=progress)) if kept else np.zeros((0, 1), "f4")
        gallery = Vectors.of(image_ND)
        ids = places if wanted is None else [id_ for id_ in wanted if id_ in places]
        row_W = np.array([places[id_] for id_ in ids], dtype=np.intp)
        label = "look-alikes" if progress else None
        itself, count = Exclusions(row_W, np.arange(len(gallery))), min(distractors, max(len(kept) - 1, 0))
        near_WK = nearest_among(gallery.take(row_W), gallery, count, itself, label=label).rows_NK
        return cls(scorer, places, gallery, dict(zip(row_W.tolist(), near_WK, strict=True)))

    def rank(self, items: Sequence[Item], groups: Sequence[Sequence[str]]) -> list[tuple[tuple[str, float], ...]]:
        """For each item its captions with their scores in nats, best first; equal scores keep their order."""
        import torch

        sets_BKD = self._sets([self.places[item.id] for item in items])
        texts = [text for group in groups for text in group]
        texts_BSD = self._scorer.text_features(texts).cpu().float()
        texts_BSD = texts_BSD.reshape(len(items), -1, texts_BSD.shape[-1])
        scores_BSK = self._scorer.scale * torch.einsum("bsd,bkd->bsk", texts_BSD, sets_BKD)
        # A data set of one picture has no distractors: rank by similarity.
        scores_BS = scores_BSK.log_softmax(-1)[..., 0] if sets_BKD.shape[1] > 1 else scores_BSK[..., 0]
        return [
            tuple(sorted(zip(group, row.tolist(), strict=True), key=lambda pair: -pair[1]))
            for group, row in zip(groups, scores_BS, strict=True)
        ]

    def _sets(self, rows: Sequence[int]) -> torch.Tensor:
        """sets_BKD: the features of each picture (first) and of its nearest neighbours."""
        import numpy as np
        import torch

        near_BK = np.stack([self._near[row] for row in rows])
        row_BK = np.concatenate([np.array(rows)[:, None], near_BK], axis=1)
        return torch.from_numpy(self._vectors.given_ND[row_BK])
