"""Encodes text with a scorer. Encodes each distinct text once, and handles texts that exceed the scorer's window."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tellapart.evaluation import retrieval
from tellapart.utils.progress import track

if TYPE_CHECKING:
    from tellapart.scorers import Scorer


_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


class ScorerTexts:
    """Computes text features with one scorer. ``long_texts``: how to handle texts that exceed the scorer's window,
    "truncate" or "sentences".
    """

    def __init__(self, scorer: Scorer, long_texts: str) -> None:
        self.scorer, self.long_texts = scorer, long_texts
        self._known: dict[str, dict[str, np.ndarray]] = {}  # by prefix
        self._long: dict[str, int] = {}  # for each text that exceeds the window, the number of truncated pieces

    def encode(self, texts: Sequence[str], prefix: str = "") -> np.ndarray:
        """Computes L2-normalized text features N×D, float32. Encodes each distinct text once and shows a progress bar.

        Truncates texts that exceed the scorer's window. If ``long_texts`` is "sentences", a long text's row is the mean
        of its sentences' features instead, so its cosine with a picture is the mean of the sentences' cosines.
        """
        known = self._known.setdefault(prefix, {})
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            pieces = [[prefix + piece for piece in parts] for parts in self.pieces(new, prefix)]
            feature_UD = _encode_all(self.scorer, [piece for parts in pieces for piece in parts])
            retrieval.check_features(feature_UD, "texts")
            if len(feature_UD) > len(pieces):
                start_U = np.cumsum([0, *[len(parts) for parts in pieces]])[:-1]
                size_U = np.array([len(parts) for parts in pieces], dtype=np.float32)
                feature_UD = np.add.reduceat(feature_UD, start_U, axis=0) / size_U[:, None]
            known.update(zip(new, feature_UD, strict=True))
            if len(new) == len(texts):
                return feature_UD  # `known` holds views of this array
        found_ND = np.stack([known[text] for text in texts])
        known.update(
            zip(texts, found_ND, strict=True)
        )  # stores views of this array, so that only one copy stays in memory
        return found_ND

    def pieces(self, unique: Sequence[str], prefix: str) -> list[list[str]]:
        """Splits long texts into sentences if ``long_texts`` is "sentences". Records which texts exceed the window."""
        sizes = self.scorer.lengths([prefix + text for text in unique])
        pieces = []
        for text, size in zip(unique, sizes, strict=True):
            parts = [text]
            if size > self.scorer.window:
                if self.long_texts == "sentences":
                    parts = [part for part in _SENTENCE_END.split(text) if part.strip()] or [text]
                over = sum(n > self.scorer.window for n in self.scorer.lengths([prefix + part for part in parts]))
                self._long[text] = max(over, self._long.get(text, 0))
            pieces.append(parts)
        return pieces

    def long_note(self) -> str | None:
        """Returns a note on texts that exceeded the scorer's window, or None if all texts fit."""
        if not self._long:
            return None
        over = sum(self._long.values())
        window = f"the window of {self.scorer.name} ({self.scorer.window} tokens)"
        line = f"{len(self._long)} distinct texts exceed {window}"
        if self.long_texts == "sentences":
            return f"{line}; scored by sentence" + (
                f", and {over} sentences that also exceed it were truncated" if over else ""
            )
        return f"{line}; truncated (--set long_texts=sentences scores them by sentence)"


def _encode_all(scorer: Scorer, texts: Sequence[str]) -> np.ndarray:
    block, feature_ND = 1024, np.zeros((0, 0), np.float32)
    starts = range(0, len(texts), block)
    for start in track(starts, len(starts), "encoding captions (1,024 per step)"):
        part_BD = scorer.text_features(texts[start : start + block]).float().cpu().numpy()
        if not start:
            feature_ND = np.empty((len(texts), part_BD.shape[1]), np.float32)
        feature_ND[start : start + block] = part_BD
    return feature_ND
