"""Clips in an evaluation: features of their frames, and EMScore's inputs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

    from tellapart.evaluation.protocols import EvalScorer, TokenScorer
    from tellapart.evaluation.scorer_texts import ScorerTexts
    from tellapart.evaluation.slots import Slot
    from tellapart.metrics.embedding import EMScore
    from tellapart.types import Item, Picture

# Features of captions N×D and of their tokens, of the clips' frames, and the tokens' weights.
EMScoreInputs = tuple[np.ndarray, list[np.ndarray], list[np.ndarray], "list[np.ndarray] | None"]
EMSCORE_IDF = ("references", "captions")


@dataclass
class ClipInputs:
    """What metrics read of an evaluation's clips, computed once.

    ``emscore_idf``: where the weights of EMScore's tokens come from, one of `EMSCORE_IDF`; None: all are alike.
    """

    items: Sequence[Item]
    scorer: TokenScorer
    texts: ScorerTexts
    references: Sequence[Sequence[str]]
    emscore_idf: str | None = None
    _kept: dict[Hashable, Any] = field(default_factory=dict)

    def frames_of(self, item: Item) -> int:
        """How many frames of an item the scorer sees, see `frames_seen`."""
        return frames_seen(item, self.scorer)

    @cached_property
    def frame_features(self) -> list[np.ndarray]:
        """Normalised features of the frames of each clip, F×D each."""
        from tellapart.features.store import FeatureStore

        count_N = [self.frames_of(item) for item in self.items]
        frames = [
            replace(item, picture=Frame(item.picture, number, count))
            for item, count in zip(self.items, count_N, strict=True)
            for number in range(count)
        ]
        flat_FD = np.asarray(FeatureStore().features(frames, self.scorer.encoder))
        return np.split(flat_FD, np.cumsum(count_N)[:-1])

    def emscore(self, slot: Slot) -> EMScore:
        """Precision, recall and F of a slot's captions against the frames of their clips."""
        from tellapart.metrics.embedding import emscore

        key = ("scores", id(slot))
        if key not in self._kept:
            self._kept[key] = emscore(*self._emscore_inputs(slot))
        found: EMScore = self._kept[key]
        return found

    def emscore_ranks(self, slot: Slot) -> np.ndarray:
        """How many clips EMScore's F holds for likelier than a caption's own, of each of N captions; NaN: no F."""
        from tellapart.evaluation.retrieval import TIE
        from tellapart.metrics.embedding import emscore_f_rows

        key = ("ranks", id(slot))
        if key not in self._kept:
            rows = enumerate(emscore_f_rows(*self._emscore_inputs(slot)))
            ranks = [np.nan if np.isnan(row_M[own]) else float((row_M > row_M[own] + TIE).sum()) for own, row_M in rows]
            self._kept[key] = np.array(ranks)
        rank_N: np.ndarray = self._kept[key]
        return rank_N

    def _emscore_inputs(self, slot: Slot) -> EMScoreInputs:
        """Features of the captions and of their tokens, of the clips' frames, and the tokens' weights."""
        parts = self.texts.pieces(slot.captions, "")
        flat = self.scorer.token_features([piece for pieces in parts for piece in pieces])
        ids, token_TD, at = [], [], 0
        for pieces in parts:
            ids.append([token for row, _ in flat[at : at + len(pieces)] for token in row])
            token_TD.append(np.concatenate([feature_TD for _, feature_TD in flat[at : at + len(pieces)]]))
            at += len(pieces)
        weight = self._token_weights(slot)
        weight_T = None if weight is None else [np.array([weight[token] for token in row]) for row in ids]
        return self.texts.encode(slot.captions), token_TD, self.frame_features, weight_T

    def _token_weights(self, slot: Slot) -> Mapping[int, float] | None:
        from tellapart.metrics.embedding import token_idf

        if self.emscore_idf is None:
            return None
        texts = slot.captions
        if self.emscore_idf == "references":
            texts = [text for texts in self.references for text in texts]
        key = ("idf", id(slot) if self.emscore_idf == "captions" else "")
        if key not in self._kept:
            end = self.scorer.tokenizer.eos_token_id
            assert end is not None, "a text tower such as CLIP's has an end token"
            self._kept[key] = token_idf(self.scorer.tokenize(texts), end, window=self.scorer.window)
        found: Mapping[int, float] = self._kept[key]
        return found


def frames_seen(item: Item, scorer: EvalScorer) -> int:
    """How many frames of an item the scorer sees: every one of a scene's clip, its ``frames`` of a file, else 1."""
    from tellapart.data.images.clips import is_clip

    if not is_clip(item.picture):
        return 1
    return int(getattr(item.picture, "length", scorer.frames))


@dataclass(frozen=True)
class Frame:
    """One frame of a clip, as a picture of its own."""

    clip: Picture
    number: int
    count: int

    @property
    def name(self) -> str:
        return self.clip.name

    def key(self) -> str:
        return f"{self.clip.key()}-frame{self.number}of{self.count}"

    def image(self) -> Image.Image:
        return _frames(self.clip, self.count)[self.number]  # type: ignore[arg-type]  # its type is no Hashable, it is


@lru_cache(maxsize=2)
def _frames(clip: Picture, count: int) -> list[Image.Image]:
    """The frames of a clip, decoded once for consecutive calls."""
    from tellapart.data.images.clips import sample_frames

    return sample_frames(clip, count)
