"""The exact listener picks the scene that a caption describes best, based on ground truth.

The listener knows every scene's ground truth and is independent of all scorers, so it shows whether a gain in retrieval
is real or due to reward hacking.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tellapart.scenes.alignment import CLAIM, PLACE, align
from tellapart.scenes.parser import ParsedCaption, parse_caption
from tellapart.scenes.world import Scene


def agreement(caption: str | ParsedCaption, scene: Scene) -> int:
    """Returns the number of true claims minus the number of false claims, in units of 1/64 claim.

    A claim about an object, a relation, the background or the number counts 1; an attribute without an object counts ½.
    Contradictory values all count as false.
    """
    parsed = parse_caption(caption) if isinstance(caption, str) else caption
    # The points that only break ties between assignments do not count.
    score = align(parsed, scene)[0] // CLAIM * CLAIM
    grounds = set(parsed.grounds)
    if len(grounds) == 1:
        score += CLAIM if scene.ground in grounds else -CLAIM
    else:
        score -= CLAIM * len(grounds)
    if parsed.number is not None:
        score += CLAIM if parsed.number == len(scene.objects) else -CLAIM
    for slot, value in set(parsed.loose):
        there = any(f[PLACE[slot]] == value for f in scene.facts)
        score += CLAIM // 2 if there else -CLAIM // 2
    return score


def listener_probabilities(caption: str | ParsedCaption, candidates: Sequence[Scene]) -> np.ndarray:
    """Returns the probabilities, K, with which an exact listener picks each candidate.

    The probability is the same for all candidates that agree best with the caption, and 0 for all other candidates. A
    caption without claims fits all candidates equally. Raises ValueError if there are no candidates.
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
    """Returns the exact listener's accuracy in percent, and for each of N captions the probability of the target.

    ``candidates[n]`` is the candidate set for caption n, and ``targets[n]`` is the index of the caption's picture in
    the set [default: 0].
    """
    places = targets if targets is not None else [0] * len(captions)
    rows = zip(captions, candidates, places, strict=True)
    picked_N = np.array(
        [listener_probabilities(caption, scenes)[place] for caption, scenes, place in rows], dtype=float
    )
    return (100 * float(picked_N.mean()) if len(picked_N) else float("nan")), picked_N
