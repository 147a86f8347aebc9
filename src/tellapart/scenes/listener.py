"""The exact listener: it knows the truth of every scene, and picks those that a caption describes best.

It is independent of every scorer, so it shows whether a gain in retrieval is real or reward hacking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .matching import CLAIM, align
from .parser import ParsedCaption, parse_caption
from .vocabulary import FIELDS

if TYPE_CHECKING:
    from .world import Scene


def agreement(caption: str | ParsedCaption, scene: Scene) -> int:
    """True claims minus false ones, in units of 1/64 claim.

    Claims bound to an object, relations, the ground and the number count 1; an attribute bound to nothing counts ½.
    Values that contradict each other are all false.
    """
    parsed = parse_caption(caption) if isinstance(caption, str) else caption
    # The points that break ties between assignments do not count.
    score = align(parsed, scene)[0] // CLAIM * CLAIM
    grounds = set(parsed.grounds)
    if len(grounds) == 1:
        score += CLAIM if scene.ground in grounds else -CLAIM
    else:
        score -= CLAIM * len(grounds)
    if parsed.number is not None:
        score += CLAIM if parsed.number == len(scene.objects) else -CLAIM
    for slot, value in set(parsed.loose):
        there = any(f[FIELDS.index(slot)] == value for f in scene.facts)
        score += CLAIM // 2 if there else -CLAIM // 2
    return score


def listener_probabilities(caption: str | ParsedCaption, candidates: Sequence[Scene]) -> np.ndarray:
    """probability_K with which the exact listener picks each candidate: uniform over those with the highest agreement.

    A caption without claims is uniform over all. Raises ValueError without candidates.
    """
    if not candidates:
        raise ValueError("a listener needs at least one candidate")
    parsed = parse_caption(caption) if isinstance(caption, str) else caption
    if parsed.empty:
        return np.full(len(candidates), 1 / len(candidates))
    score_K = np.array([agreement(parsed, scene) for scene in candidates])
    best_K = score_K == score_K.max()
    probability_K: np.ndarray = best_K / best_K.sum()
    return probability_K


def listener_accuracy(
    captions: Sequence[str], candidates: Sequence[Sequence[Scene]], targets: Sequence[int] | None = None
) -> tuple[float, np.ndarray]:
    """Percent of captions whose target the exact listener picks, and the probability_N of each caption.

    ``candidates[n]`` is the set of caption n; ``targets[n]`` its picture's number there (0 where None).
    """
    places = targets if targets is not None else [0] * len(captions)
    rows = zip(captions, candidates, places, strict=True)
    picked_N = np.array(
        [listener_probabilities(caption, scenes)[place] for caption, scenes, place in rows], dtype=float
    )
    return (100 * float(picked_N.mean()) if len(picked_N) else float("nan")), picked_N
