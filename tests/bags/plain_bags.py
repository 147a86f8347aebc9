"""Algorithms 1 and 2 of paper 2 as they stand there, line by line: slow, and plainly right."""

from __future__ import annotations

import numpy as np


def cosines(features_ND: np.ndarray) -> np.ndarray:
    """All cosines in float64, rounded where ties are meant to begin."""
    features_ND = np.asarray(features_ND, dtype=np.float64)
    length_N = np.maximum(np.linalg.norm(features_ND, axis=1), 1e-12)
    return np.round(features_ND @ features_ND.T / np.outer(length_N, length_N), 9)


def algorithm_1(cosine_NN: np.ndarray, size: int) -> tuple[list[list[int]], list[float]]:
    bags, alphas = [], []
    for r in range(len(cosine_NN)):
        others = [k for k in range(len(cosine_NN)) if k != r]
        nearest = sorted(others, key=lambda k: (-cosine_NN[r, k], k))[: size - 1]
        bags.append([r, *nearest])
        alphas.append(float(np.mean([cosine_NN[r, k] for k in nearest])))
    return bags, alphas


def algorithm_2(bags: list[list[int]], alphas: list[float]) -> list[list[int]]:
    visited: set[int] = set()
    kept = []
    for b in sorted(range(len(bags)), key=lambda b: (-round(alphas[b], 9), b)):
        if not set(bags[b]) & visited:
            visited |= set(bags[b])
            kept.append(bags[b])
    return kept


def training(cosine_NN: np.ndarray, size: int, top: int = 200) -> tuple[list[list[int]], list[int]]:
    """Appendix B.2: the top 200 of each row; none that has been added to another bag before."""
    used: set[int] = set()
    bags = []
    for r in range(len(cosine_NN)):
        if r in used:
            continue
        order = sorted((k for k in range(len(cosine_NN)) if k != r), key=lambda k: (-cosine_NN[r, k], k))[:top]
        free = [k for k in order if k not in used][: size - 1]
        if len(free) == size - 1:
            bags.append([r, *free])
            used |= {r, *free}
    return bags, [r for r in range(len(cosine_NN)) if r not in used]
