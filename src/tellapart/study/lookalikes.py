"""Builds the sets of pictures for ``pick``: look-alikes for its items, dissimilar pictures for its control items.

Each look-alike set has a target, as in paper 3's human study (section 4.2.4, appendix A). Targets come in random
order. A target's distractors are the nearest pictures by cosine that are not in any set yet and whose cosine *to the
target* does not exceed a limit (0.8 in the paper). The cosine between two distractors is not limited. The sets are
disjoint.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tellapart.features.nearest import Vectors
from tellapart.study.seeded_order import shuffled
from tellapart.utils.progress import Progress

MAX_COSINE = 0.8  # paper 3, footnote 8


def disjoint_lookalikes(
    features_ND: npt.ArrayLike,
    targets: Sequence[int],
    available: Sequence[int],
    *,
    size: int = 10,
    count: int | None = None,
    max_cosine: float = MAX_COSINE,
) -> list[list[int]]:
    """Builds up to ``count`` sets of ``size`` rows of ``features_ND``. Each set starts with the target, followed by its
    distractors, nearest first.

    targets: candidate target rows, in the order in which they are tried.
    available: rows that a set may contain.

    Skips targets for which too few pictures remain. Breaks ties by row (see `tellapart.features.nearest`).
    """
    vectors = Vectors.of(features_ND)
    free_N = np.isin(np.arange(len(vectors)), available)
    sets: list[list[int]] = []
    with Progress(count or len(targets), "finding look-alikes") as progress:
        for target in targets:
            if len(sets) == count:
                break
            if not free_N[target]:
                continue
            row_M = np.setdiff1d(np.flatnonzero(free_N), target)
            cosine_M = vectors.cosines(np.full(len(row_M), target), row_M)
            nearest_M = np.argsort(-cosine_M, kind="stable")
            distractors = row_M[nearest_M[cosine_M[nearest_M] <= max_cosine]][: size - 1].tolist()
            if len(distractors) == size - 1:
                sets.append([int(target), *distractors])
                free_N[sets[-1]] = False
                progress.advance()
    return sets


def unlike_sets(
    features_ND: npt.ArrayLike, reserved: Sequence[int], *, size: int, count: int, seed: str
) -> list[list[int]]:
    """Builds ``count`` disjoint sets of reserved rows for control items. Each set consists of a target and random
    dissimilar pictures.

    Draws the distractors from the half of the free rows that is less similar to the target, so that the item is easy.
    """
    vectors = Vectors.of(features_ND)
    free = shuffled(reserved, seed, "easy")
    sets = []
    for number in range(count):
        target, *others = free
        row_M = np.array(others, int)
        cosine_M = vectors.cosines(np.full(len(row_M), target), row_M)
        half = max(size - 1, len(others) // 2)
        unlike = row_M[np.argsort(cosine_M, kind="stable")[:half]].tolist()
        sets.append([target, *shuffled(unlike, seed, f"easy {number}")[: size - 1]])
        free = [row for row in others if row not in sets[-1]]
    return sets
