"""Mines bags of look-alikes from features, and selects disjoint ones (paper 2, algorithms 1 and 2)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, Literal, get_args

import numpy as np

from tellapart.bags.file import Bag
from tellapart.bags.multimodal import multimodal
from tellapart.errors import UsageError
from tellapart.features.all_neighbours import nearest_neighbours
from tellapart.features.nearest import BLOCK, DIGITS, Neighbours, Vectors

Similarity = Literal["query", "pairs"]
MaxCosineOf = Literal["target", "pairs"]
TOP = 200  # number of neighbours considered for training bags (paper 2, appendix B.2) and for filtered bags


def mine_bags(
    features_ND: np.ndarray,
    size: int,
    *,
    ids: Sequence[Any] | None = None,
    texts_ND: np.ndarray | Sequence[np.ndarray] | None = None,
    similarity: Similarity = "query",
    keys: Sequence[Hashable] | None = None,
    max_cosine: float | None = None,
    max_cosine_of: MaxCosineOf = "target",
    min_cosine: float | None = None,
    neighbours: Neighbours | None = None,
    approximate: bool | None = None,
    block: int = BLOCK,
) -> list[Bag]:
    """Mines one bag of ``size`` for every picture: the picture and its nearest neighbours (paper 2, algorithm 1).

    Ties go to the picture that comes first.

    Args:
        features_ND: the scorer's features for the pictures.
        texts_ND: the scorer's features for their captions, N×D (mean) or one M×D per picture; picture and text
            features are joined as in `multimodal`.
        ids: ids of the pictures in bags. Default: row numbers.
        similarity: α is the mean cosine between the query and its neighbours ("query", algorithm 1), or over all
            pairs ("pairs", section 3.1).
        keys: content keys; if several pictures share a key, only the first is used.
        max_cosine: limit on the cosine between the query and its neighbours (paper 3, footnote 8: 0.8); pictures above
            it are replaced by the next neighbours.
        max_cosine_of: "target" limits the cosine with the query, and "pairs" the cosine of every pair. With "pairs",
            a query gets no bag if its 200 nearest neighbours do not fill one.
        min_cosine: a picture with too few neighbours at or above this cosine gets no bag; with similarity "pairs",
            the limit applies to all pairs.
        neighbours: precomputed neighbours of the same (joined, distinct) features.

    Raises:
        UsageError: there are fewer pictures than ``size``, or features are not finite.
    """
    if size < 2:
        raise UsageError(f"bag size: expected at least 2, got {size}")
    for name, choice, known in (
        ("similarity", similarity, get_args(Similarity)),
        ("max_cosine_of", max_cosine_of, get_args(MaxCosineOf)),
    ):
        if choice not in known:
            raise UsageError(f"{name}: expected one of {', '.join(known)}, got '{choice}'")
    check_max_cosine(max_cosine)
    joined_ND = multimodal(features_ND, texts_ND) if texts_ND is not None else np.asarray(features_ND)
    row_N = distinct(keys, len(joined_ND))
    if len(row_N) < size:
        copies = f" ({len(joined_ND)} including copies)" if len(row_N) < len(joined_ND) else ""
        raise UsageError(f"bags of {size} need at least {size} distinct pictures, got {len(row_N)}{copies}")
    vectors = Vectors.of(joined_ND[row_N] if len(row_N) < len(joined_ND) else joined_ND)
    names = list(ids) if ids is not None else list(range(len(joined_ND)))
    if len(names) != len(joined_ND):
        raise UsageError(f"expected one id per picture, got {len(names)} ids for {len(joined_ND)} rows of features")
    if neighbours is None:
        count = neighbours_for(size, max_cosine, max_cosine_of)
        neighbours = nearest_neighbours(vectors, count, max_cosine=max_cosine, approximate=approximate, block=block)
    apart = max_cosine if max_cosine_of == "pairs" else None  # the search applies the limit to the target
    bag_MS = _fill(vectors.unit_ND, neighbours.rows_NK, size, apart)
    first_P, second_P = (pair_P[: size - 1 if similarity == "query" else None] for pair_P in np.triu_indices(size, 1))
    cosine_M = vectors.cosines(bag_MS[:, first_P].ravel(), bag_MS[:, second_P].ravel())
    cosine_MP = cosine_M.reshape(len(bag_MS), len(first_P))
    if min_cosine is not None:
        alike_M = cosine_MP.min(1) >= min_cosine
        bag_MS, cosine_MP = bag_MS[alike_M], cosine_MP[alike_M]
    return [
        Bag(tuple(names[row] for row in rows), alpha, tuple(rows))
        for rows, alpha in zip(row_N[bag_MS].tolist(), cosine_MP.mean(1).tolist(), strict=True)
    ]


def curate_bags(bags: Sequence[Bag]) -> list[Bag]:
    """Selects disjoint bags, most similar first (paper 2, algorithm 2).

    Goes through the bags in order of descending similarity (rounded to nine digits; ties keep their order), and keeps a
    bag if none of its pictures is in a kept bag.
    """
    unknown = [bag for bag in bags if math.isnan(bag.similarity)]
    if unknown:
        raise UsageError(f"{len(unknown)} of {len(bags)} bags have no similarity to sort by; mine them again")
    seen: set[Any] = set()
    kept: list[Bag] = []
    for bag in sorted(bags, key=lambda bag: -round(bag.similarity, DIGITS)):
        if seen.isdisjoint(bag.ids):
            seen.update(bag.ids)
            kept.append(bag)
    return kept


def distinct(keys: Sequence[Hashable] | None, n: int) -> np.ndarray:
    """Returns the row of the first picture with each content key, or all n rows if there are no keys."""
    if keys is None:
        return np.arange(n)
    if len(keys) != n:
        raise UsageError(f"expected one content key per picture, got {len(keys)} for {n} pictures")
    first: dict[Hashable, int] = {}
    for row, key in enumerate(keys):
        first.setdefault(key, row)
    return np.fromiter(first.values(), np.int64, len(first))


def neighbours_for(size: int, max_cosine: float | None, max_cosine_of: MaxCosineOf) -> int:
    """Returns how many neighbours to search for bags of ``size``. A limit on pairs requires more."""
    return size - 1 if max_cosine is None or max_cosine_of == "target" else max(TOP, size - 1)


def check_sizes(sizes: Sequence[int]) -> list[int]:
    """Returns the distinct sizes in ascending order. Raises `UsageError` for a size below two."""
    if not sizes or min(sizes) < 2:
        raise UsageError(
            f"bag sizes: expected sizes of at least 2, such as 3,5,7, got {', '.join(map(str, sizes)) or 'no size'}"
        )
    return sorted(set(sizes))


def check_max_cosine(max_cosine: float | None) -> None:
    """Raises `UsageError` if the limit is not a valid cosine."""
    if max_cosine is not None and not -1 < max_cosine <= 1:
        raise UsageError(f"max_cosine: expected a cosine such as 0.8, got {max_cosine:g}")


def _fill(unit_ND: np.ndarray, rows_NK: np.ndarray, size: int, max_cosine: float | None) -> np.ndarray:
    """Returns the rows of each bag, M×size. Queries with too few neighbours have no bag."""
    if max_cosine is None:
        bag_NS = np.concatenate([np.arange(len(rows_NK))[:, None], rows_NK[:, : size - 1]], axis=1)
        return bag_NS[(bag_NS >= 0).all(1)] if bag_NS.shape[1] == size else np.zeros((0, size), np.int64)
    bags = [
        bag for row in range(len(rows_NK)) if (bag := _apart(unit_ND, row, rows_NK[row], size, max_cosine)) is not None
    ]
    return np.array(bags, dtype=np.int64).reshape(-1, size)


def _apart(unit_ND: np.ndarray, row: int, nearest_K: np.ndarray, size: int, max_cosine: float) -> list[int] | None:
    """Returns a query and its neighbours with pairwise cosines ≤ ``max_cosine``, or None if there are too few."""
    nearest_K = nearest_K[nearest_K >= 0]
    cosine_KK = unit_ND[nearest_K] @ unit_ND[nearest_K].T
    places: list[int] = []
    for place in range(len(nearest_K)):
        if len(places) == size - 1:
            break
        if not places or cosine_KK[place, places].max() <= max_cosine + 1e-6:
            places.append(place)
    return [row, *nearest_K[places].tolist()] if len(places) == size - 1 else None
