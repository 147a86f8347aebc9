"""Clusters features by spherical k-means on a sample."""

from __future__ import annotations

import math

import numpy as np
import torch

from tellapart.bags.cluster_sizes import Sizes
from tellapart.bags.feature_shards import FeatureShards
from tellapart.bags.row_files import NOT_FOUND
from tellapart.errors import UsageError
from tellapart.features.approximate import load_faiss

SAMPLED = 64  # sampled pictures per cluster for k-means
STEPS = 10  # k-means iterations
ASSIGNED_AT_ONCE = 8192


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
