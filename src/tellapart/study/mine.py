"""Sets of pictures that look alike, each with a target, as paper 3 made them for people (section 4.2.4, appendix A).

Targets come in random order. The distractors of a target are its nearest pictures by cosine among those that are in no
set yet and whose cosine *to the target* is at most a limit (0.8 in the paper); nothing else is limited. So no picture
is in two sets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tellapart.features.nearest import Vectors
from tellapart.progress import Progress

MAX_COSINE = 0.8  # paper 3, footnote 8


def lookalike_sets(
    features_ND: npt.ArrayLike,
    targets: Sequence[int],
    available: Sequence[int],
    *,
    size: int = 10,
    count: int | None = None,
    max_cosine: float = MAX_COSINE,
) -> list[list[int]]:
    """Up to ``count`` sets of ``size`` rows of ``features_ND``, the target first, then from near to far.

    targets: rows that may be one, in the order in which they are tried. available: rows that a set may hold. A target
    with too few pictures left is passed over. Equal cosines are ordered by row (`tellapart.features.nearest`).
    """
    vectors = Vectors.of(features_ND)
    free_N = np.zeros(len(vectors), bool)
    free_N[list(available)] = True
    sets: list[list[int]] = []
    with Progress(count if count is not None else len(targets), "finding look-alikes") as progress:
        for target in targets:
            if count is not None and len(sets) >= count:
                break
            if not free_N[target]:
                continue
            free_N[target] = False
            rows_M = np.flatnonzero(free_N)
            cosine_M = vectors.cosines(np.full(len(rows_M), target), rows_M)
            near = cosine_M <= max_cosine
            rows_M, cosine_M = rows_M[near], cosine_M[near]
            if len(rows_M) < size - 1:
                free_N[target] = True  # it may still be a distractor
                continue
            order_K = np.lexsort((rows_M, -cosine_M))[: size - 1]
            chosen = [int(row) for row in rows_M[order_K]]
            free_N[chosen] = False
            sets.append([int(target), *chosen])
            progress.advance()
    return sets


def easy_sets(
    features_ND: npt.ArrayLike, reserved: Sequence[int], *, size: int, count: int, seed: str
) -> list[list[int]]:
    """``count`` disjoint sets of reserved rows for control items: a target among random pictures unlike it.

    The distractors are drawn from the half of the free rows that is less like the target, so that a look suffices.
    """
    from tellapart.study.design import shuffled

    vectors = Vectors.of(features_ND)
    free = shuffled(reserved, seed, "easy")
    sets = []
    for number in range(count):
        target, rest = free[0], np.array(free[1:])
        cosine_M = vectors.cosines(np.full(len(rest), target), rest)
        far = [int(row) for row in rest[np.argsort(cosine_M, kind="stable")[: max(size - 1, len(rest) // 2)]]]
        chosen = shuffled(far, seed, f"easy {number}")[: size - 1]
        sets.append([target, *chosen])
        free = [row for row in free[1:] if row not in set(chosen)]
    return sets
