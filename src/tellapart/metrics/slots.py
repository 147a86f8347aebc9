"""Captions in slots, the input of metrics. The first slot holds each picture's first caption, and so on."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tellapart.errors import UsageError
from tellapart.metrics.corpus_scores import Measurement, merged

HUMAN, CHANCE = "human", "chance"  # reference systems: human captions, and a blind guess
HUMAN_CHOICES = ("first", "random", "mean")


@dataclass(eq=False)
class CaptionSlot:
    """One caption per picture, in the order of the ids, with the pictures' references.

    ``confidences``: each picture's claims with their confidences (0 to 1), if the caption file states them.
    """

    captions: list[str]
    references: list[list[str]] | None = None
    repeats: np.ndarray | None = None  # True for pictures whose caption repeats an earlier slot
    confidences: Sequence[Mapping[Hashable, float]] | None = None

    @property
    def said_N(self) -> np.ndarray:
        """Returns 1 for each non-empty caption and 0 for each empty caption. Multiplying by it sets the scores
        of empty captions to 0.
        """
        return np.array([float(bool(text.strip())) for text in self.captions])


def system_slots(lists: list[list[str]], all_references: list[list[str]] | None) -> list[CaptionSlot]:
    """Splits a system's captions into slots: each picture's first caption, each picture's second caption, and so on.

    If a picture has fewer captions than other pictures, its captions are repeated. Repeats count only in the corpus
    scores of single-caption metrics.
    """
    width = max(map(len, lists))
    return [
        CaptionSlot(
            [texts[number % len(texts)] for texts in lists],
            all_references,
            np.array([number >= len(texts) for texts in lists]) if width > 1 else None,
        )
        for number in range(width)
    ]


def caption_lists(slots: Sequence[CaptionSlot]) -> list[list[str]]:
    """Returns each picture's captions, without repeats."""
    kept = [np.zeros(len(slot.captions), bool) if slot.repeats is None else slot.repeats for slot in slots]
    return [
        [slot.captions[number] for slot, repeats_N in zip(slots, kept, strict=True) if not repeats_N[number]]
        for number in range(len(slots[0].captions))
    ]


def human_slots(choice: str, all_references: list[list[str]] | None, seed: int) -> list[CaptionSlot]:
    """Returns human captions as a system, each scored against the picture's other references."""
    if choice not in HUMAN_CHOICES:
        raise UsageError(f"human is '{choice}'; expected one of {', '.join(HUMAN_CHOICES)}")
    if all_references is None:
        raise UsageError("--human scores references; add --references FILE, or --data with references")
    if choice == "first":
        slots = [[0] * len(all_references)]
    elif choice == "random":
        rng = np.random.default_rng(seed)
        slots = [[int(rng.integers(len(texts))) for texts in all_references]]
    else:
        slots = [[slot % len(texts) for texts in all_references] for slot in range(max(map(len, all_references)))]
    return [
        CaptionSlot(
            [texts[pick] for texts, pick in zip(all_references, picks, strict=True)],
            [texts[:pick] + texts[pick + 1 :] for texts, pick in zip(all_references, picks, strict=True)],
            np.array([slot >= len(texts) for texts in all_references]),
        )
        for slot, picks in enumerate(slots)
    ]


def merge_slots(measured_S: Sequence[Measurement], slots: Sequence[CaptionSlot]) -> Measurement:
    """Merges a system's measurements of all slots by averaging over each picture's captions."""
    values = [measured.value_N for measured in measured_S if measured.value_N is not None]
    value_N = values[0] if values else None
    if len(values) > 1:
        # Repeated captions, which fill up pictures that have fewer captions, count only in corpus scores.
        value_SN = np.array(
            [
                own_N if slot.repeats is None else np.where(slot.repeats, np.nan, own_N)
                for slot, own_N in zip(slots, values, strict=True)
            ]
        )
        count_N = np.count_nonzero(~np.isnan(value_SN), axis=0)
        value_N = np.where(count_N > 0, np.nansum(value_SN, axis=0) / np.maximum(count_N, 1), np.nan)
    corpora = [measured.corpus for measured in measured_S if measured.corpus is not None]
    if not corpora:
        return Measurement(value_N, weight_N=measured_S[0].weight_N)
    return Measurement(value_N, merged(corpora))
