"""Finds the pictures that a caption fits, according to a scorer."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from tellapart.data import Dataset, Skipped
from tellapart.features.store import FeatureStore
from tellapart.inference.best_of import BestOf
from tellapart.models.devices import resolve_device
from tellapart.scorers.base import Scorer
from tellapart.scorers.load import load_scorer
from tellapart.utils.blocks import blocks_of

CAPTIONS_PER_BLOCK = 1024  # captions per block when compared with all pictures


class FitFinder:
    """Finds the pictures that a caption fits according to a scorer. Thread-safe."""

    def __init__(self, scorer: Scorer, dataset: Dataset) -> None:
        self.scorer, self._dataset = scorer, dataset
        self._lock = threading.RLock()
        self._image_ND: np.ndarray | None = None
        self._places: dict[str, int] = {}
        self._texts: dict[str, np.ndarray] = {}

    @classmethod
    def open(cls, scorer: str, device: str, dataset: Dataset) -> FitFinder:
        """Loads the named scorer. Raises `UsageError` if there is no such model."""
        return cls(load_scorer(scorer, resolve_device(device)), dataset)

    def _encode(self) -> np.ndarray:
        """Returns the N×D features of the readable pictures, encoded once and cached in the feature store."""
        if self._image_ND is None:
            store, encoder = FeatureStore(), self.scorer.encoder
            items = store.readable(self._dataset, encoder, skipped=Skipped(), progress=False)
            self._image_ND = np.asarray(store.features(items, encoder, progress=False)) if items else np.zeros((0, 1))
            self._places = {item.id: place for place, item in enumerate(items)}
        return self._image_ND

    def _text_features(self, texts: Sequence[str]) -> np.ndarray:
        new = list(dict.fromkeys(text for text in texts if text not in self._texts))
        if new:
            rows = self.scorer.text_features(new).cpu().float().numpy()
            self._texts |= dict(zip(new, rows, strict=True))
        return np.stack([self._texts[text] for text in texts])

    def cosines(self, texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
        """Returns the ids of the N readable pictures, and their cosine_CN with C texts."""
        with self._lock:
            image_ND = self._encode()
            cosine_CN = self._text_features(texts) @ image_ND.T if texts else np.zeros((0, len(image_ND)))
            return list(self._places), cosine_CN

    def fits(self, id_: str, text: str, count: int) -> tuple[list[tuple[str, float]], int]:
        """Returns (id, cosine) of the pictures that the scorer finds most similar to a text, best first.

        The picture ``id_`` is always included. Also returns how many other pictures are more similar than ``id_``.
        """
        with self._lock:
            image_ND = self._encode()
            if not text.strip() or id_ not in self._places:
                return [], 0
            cosine_N = image_ND @ self._text_features([text])[0]
            ids, own = list(self._places), cosine_N[self._places[id_]]
            best = [ids[place] for place in np.argsort(-cosine_N, kind="stable")[:count]]
            shown = best if id_ in best else [*best[:-1], id_]
            return [(one, float(cosine_N[self._places[one]])) for one in shown], int((cosine_N > own).sum())

    def collisions(self, texts: Mapping[str, str]) -> dict[str, int]:
        """Counts, for each caption, the other pictures that it fits at least as well as its own. Omits counts of 0."""
        with self._lock:
            image_ND = self._encode()
            ids = [id_ for id_, text in texts.items() if text.strip() and id_ in self._places]
            found: dict[str, int] = {}
            for some in blocks_of(ids, CAPTIONS_PER_BLOCK):
                cosine_CN = self._text_features([texts[id_] for id_ in some]) @ image_ND.T
                own_C = cosine_CN[np.arange(len(some)), [self._places[id_] for id_ in some]]
                count_C = (cosine_CN >= own_C[:, None] - 1e-6).sum(1) - 1
                found |= {id_: int(count) for id_, count in zip(some, count_C, strict=True) if count > 0}
            return found

    def best_of(self, ids: Sequence[str]) -> BestOf:
        """Creates a `BestOf`, which ranks samples by how well the scorer finds their picture among look-alikes."""
        with self._lock:
            image_ND = self._encode()
            return BestOf.of_features(self.scorer, list(self._places), image_ND, wanted=ids, progress=False)
