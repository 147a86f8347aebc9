"""Clusters features by spherical k-means on a sample, and chooses cluster sizes that fit a memory limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from tellapart.bags.row_files import NOT_FOUND
from tellapart.bags.shards import FeatureShards
from tellapart.errors import UsageError
from tellapart.features.approximate import load_faiss

KEPT = 20  # minimum number of neighbours kept per picture during the search
NEAREST, PICTURES = 8, 5_000  # clusters per picture, pictures per cluster; refinement finds missed neighbours
# With more than `KEPT` neighbours, lists are too long to be stored for eight clusters and to be refined.
NEAREST_OF_MANY, PICTURES_OF_MANY = 2, 50_000
WHOLE = 25_000  # up to this many pictures, all pairs are compared
TOGETHER = 50_000  # number of pictures per task, in one or more clusters
SAMPLED = 64  # sampled pictures per cluster for k-means
STEPS = 10  # k-means iterations
ASSIGNED_AT_ONCE = 8192
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


def centroids_of(features: FeatureShards, sizes: Sizes, seed: int = 0) -> np.ndarray:
    """Computes unit centroids C×D by spherical k-means on a sample that contains the same fraction of every file.

    Splits clusters that, according to the sample, would be too large.
    """
    sample_FD = sample(features, SAMPLED * sizes.clusters, seed)
    centre_CD = kmeans(sample_FD, min(sizes.clusters, len(sample_FD)), seed)
    limit = max(2, sizes.largest * len(sample_FD) / len(features))
    for attempt in range(1, 4):
        cluster_FM = nearest_clusters(sample_FD, centre_CD, sizes.nearest)
        count_C = np.bincount(cluster_FM[cluster_FM >= 0], minlength=len(centre_CD))
        large = np.flatnonzero(count_C > limit)
        if not len(large):
            break
        parts = [np.delete(centre_CD, large, 0)]
        for cluster in large:
            inside_MD = sample_FD[(cluster_FM == cluster).any(1)]
            parts.append(kmeans(inside_MD, math.ceil(2 * count_C[cluster] / limit), seed + attempt))
        centre_CD = np.concatenate(parts)
    return centre_CD


def sample(features: FeatureShards, wanted: int, seed: int) -> np.ndarray:
    """Returns a sample of about ``wanted`` rows, or all rows if there are fewer, normalized, F×D."""
    share = min(1.0, wanted / len(features))
    parts = []
    for number, shard in enumerate(features.shards):
        rng = np.random.default_rng([seed, number])
        count = min(shard.rows, max(1, round(share * shard.rows)))
        parts.append(unit(shard.read(np.sort(rng.choice(shard.rows, count, replace=False))), str(shard.path)))
    return np.concatenate(parts)


def kmeans(unit_FD: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """Computes unit centroids with FAISS."""
    faiss = load_faiss("k-means clustering")
    if clusters >= len(unit_FD):
        return unit_FD.copy()
    made = faiss.Kmeans(
        unit_FD.shape[1], clusters, niter=STEPS, seed=seed + 1, spherical=True, min_points_per_centroid=1,
        max_points_per_centroid=10**9,
    )  # fmt: skip
    made.train(np.ascontiguousarray(unit_FD))
    centre_CD: np.ndarray = made.centroids
    unit_CD: np.ndarray = centre_CD / np.maximum(np.linalg.norm(centre_CD, axis=1, keepdims=True), 1e-12)
    return unit_CD.astype(np.float32)


def nearest_clusters(unit_ND: np.ndarray, centre_CD: np.ndarray, nearest: int) -> np.ndarray:
    """Returns the indices of each row's M = ``nearest`` centroids, N×M int32, nearest first, padded with −1."""
    found_NM = np.full((len(unit_ND), nearest), NOT_FOUND, np.int32)
    centre = torch.from_numpy(centre_CD)
    kept = min(nearest, len(centre_CD))
    for start in range(0, len(unit_ND), ASSIGNED_AT_ONCE):
        cosine_BC = torch.from_numpy(unit_ND[start : start + ASSIGNED_AT_ONCE]) @ centre.T
        found_NM[start : start + ASSIGNED_AT_ONCE, :kept] = cosine_BC.topk(kept, 1).indices.numpy()
    return found_NM


def unit(rows_ND: np.ndarray, name: str = "features") -> np.ndarray:
    """Normalizes rows. Raises `UsageError` with the file's ``name`` for rows with zero, NaN or infinite length."""
    length_N = np.linalg.norm(rows_ND, axis=1, keepdims=True)
    if bad := int((~(np.isfinite(length_N) & (length_N > 0))).sum()):
        raise UsageError(
            f"{name}: {bad:,} rows are zero, NaN or infinite; encode these pictures again "
            "(--precision fp32), or exclude them"
        )
    unit_ND: np.ndarray = (rows_ND / length_N).astype(np.float32)
    return unit_ND
