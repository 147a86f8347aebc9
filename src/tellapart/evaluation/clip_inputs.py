"""EMScore's inputs: the frame features of an evaluation's clips, and their captions' tokens."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from tellapart.evaluation import retrieval
from tellapart.evaluation.clip_frames import Frame, frames_seen
from tellapart.evaluation.scorer_texts import ScorerTexts
from tellapart.metrics.em_score import EMScore, emscore, emscore_f_rows, token_idf
from tellapart.metrics.slots import CaptionSlot
from tellapart.types import Item

# The features of the captions (N×D), of their tokens and of the clips' frames, and the token weights.
EMScoreInputs = tuple[np.ndarray, list[np.ndarray], list[np.ndarray], "list[np.ndarray] | None"]


class ClipInputs:
    """An evaluation's clips. Computes their frame features and EMScore once."""

    def __init__(
        self,
        items: Sequence[Item],
        texts: ScorerTexts,
        references: Sequence[Sequence[str]],
        idf: str | None,
        once: Callable[[Hashable, Callable[[], Any]], Any],
    ) -> None:
        self.items, self.texts, self.scorer = items, texts, texts.scorer
        self.references, self.idf, self.once = references, idf, once

    @cached_property
    def frame_features(self) -> list[np.ndarray]:
        """Returns each clip's L2-normalized frame features, F×D."""
        from tellapart.features import store

        count_N = [frames_seen(item, self.scorer) for item in self.items]
        frames = [
            replace(item, picture=Frame(item.picture, number, count))
            for item, count in zip(self.items, count_N, strict=True)
            for number in range(count)
        ]
        flat_FD = np.asarray(store.FeatureStore().features(frames, self.scorer.encoder))
        return np.split(flat_FD, np.cumsum(count_N)[:-1])

    def emscore(self, slot: CaptionSlot) -> EMScore:
        """Compares a slot's captions with their clips' frames and returns precision, recall and F."""
        found: EMScore = self.once(("emscore", id(slot)), lambda: emscore(*self._emscore_inputs(slot)))
        return found

    def emscore_ranks(self, slot: CaptionSlot) -> np.ndarray:
        """For each of N captions, counts the clips with a higher EMScore F than the caption's own clip; NaN if F is
        NaN.
        """

        def ranks() -> np.ndarray:
            rows = enumerate(emscore_f_rows(*self._emscore_inputs(slot)))
            return np.array(
                [np.nan if np.isnan(row_M[own]) else (row_M > row_M[own] + retrieval.TIE).sum() for own, row_M in rows],
                dtype=float,
            )

        rank_N: np.ndarray = self.once(("emscore ranks", id(slot)), ranks)
        return rank_N

    def _emscore_inputs(self, slot: CaptionSlot) -> EMScoreInputs:
        """Returns the features of the captions, their tokens and the clips' frames, and the token weights."""
        parts = self.texts.pieces(slot.captions, "")
        flat = iter(self.scorer.token_features([piece for pieces in parts for piece in pieces]))
        rows = [[next(flat) for _ in pieces] for pieces in parts]
        token_TD = [np.concatenate([feature_TD for _, feature_TD in row]) for row in rows]
        weight = self._token_weights(slot)
        weight_T = None if weight is None else [np.array([weight[t] for ids, _ in row for t in ids]) for row in rows]
        return self.texts.encode(slot.captions), token_TD, self.frame_features, weight_T

    def _token_weights(self, slot: CaptionSlot) -> Mapping[int, float] | None:
        if self.idf is None:
            return None
        by_captions = self.idf == "captions"
        texts = slot.captions if by_captions else [text for own in self.references for text in own]
        end = self.scorer.tokenizer.eos_token_id
        assert end is not None, "EMScore requires a text tower that has an end token, such as CLIP's"
        weights: Mapping[int, float] = self.once(
            ("idf", id(slot) if by_captions else ""),
            lambda: token_idf(self.scorer.tokenize(texts), end, window=self.scorer.window),
        )
        return weights
