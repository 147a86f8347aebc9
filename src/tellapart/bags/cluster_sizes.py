"""Chooses the number and sizes of clusters that fit a memory limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tellapart.errors import UsageError

KEPT = 20  # minimum number of neighbours kept per picture during the search
NEAREST, PICTURES = 8, 5_000  # clusters per picture, pictures per cluster; refinement finds missed neighbours
# With more than `KEPT` neighbours, lists are too long to be stored for eight clusters and to be refined.
NEAREST_OF_MANY, PICTURES_OF_MANY = 2, 50_000
WHOLE = 25_000  # up to this many pictures, all pairs are compared
TOGETHER = 50_000  # number of pictures per task, in one or more clusters
QUERIES = 256  # pictures per block in refinement


@dataclass(frozen=True)
class Sizes:
    """The number and sizes of clusters. Clusters larger than ``largest`` are searched in parts.

    nearest: number of clusters per picture.
    together: number of clusters per task.
    candidates: maximum number of pictures compared with a block at once.
    refined: whether to search the neighbours of neighbours.
    """

    clusters: int
    largest: int
    nearest: int = NEAREST
    together: int = 1
    candidates: int = 100_000
    refined: bool = True


def sizes_for(pictures: int, width: int, k: int, memory_gb: float, mean: int | None = None) -> Sizes:
    """Chooses clusters of about ``mean`` pictures, or fewer if ``memory_gb`` (10⁹ bytes) requires it.

    By default, up to `WHOLE` pictures form a single cluster. More pictures form clusters of `PICTURES` or √pictures,
    whichever is more; with √pictures, assigning pictures to clusters costs as much as searching the clusters. For each
    picture, memory must hold the features twice (raw and normalized) and the candidates. Half of the memory is reserved
    for Python, torch and clusters larger than the mean. Raises `UsageError` if the memory is too small.
    """
    each = 8 * width + 32 * (k + 8)
    fixed = 0.5e9  # the libraries, and blocks of cosines
    largest = int((memory_gb * 1e9 - fixed) / each)
    if largest < 4 * (k + 1):
        least = (4 * (k + 1) * each + fixed) / 1e9
        raise UsageError(
            f"--memory-gb {memory_gb:g}: expected at least {least:.1f} for {k} neighbours and {width} dimensions"
        )
    refined = k <= KEPT
    nearest, usual = (NEAREST, PICTURES) if refined else (NEAREST_OF_MANY, PICTURES_OF_MANY)
    if mean is None:
        mean = nearest * pictures if pictures <= WHOLE else max(usual, math.isqrt(pictures))
    size = min(mean, largest / 2)
    # Each candidate needs its features as on disk, as float32 and reordered, and its cosines with a block.
    candidates = int((memory_gb * 1e9 - fixed) / (12 * width + 8 * QUERIES + 64))
    clusters = max(1, math.ceil(nearest * pictures / size))
    return Sizes(clusters, largest, nearest, max(1, int(TOGETHER / size)), max(QUERIES, candidates), refined)
