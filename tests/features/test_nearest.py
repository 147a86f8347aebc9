"""One exact search and one tie rule: against plain float64, and through everything that uses it."""

from __future__ import annotations

import numpy as np
import pytest

from tellapart.bags.hard_pool import nearest_to_targets
from tellapart.errors import UsageError
from tellapart.evaluation.candidate_sets import lookalike_sets
from tellapart.features.all_neighbours import nearest_neighbours
from tellapart.features.nearest import Exclusions, Vectors, nearest_among


def tied(n: int = 90, d: int = 6) -> np.ndarray:
    """Features of lengths other than 1, with many cosines that are equal in float64 or differ in the eighth digit."""
    rng = np.random.default_rng(0)
    features_ND = rng.integers(-1, 2, (n, d)).astype(np.float32)
    features_ND[: n // 3] = (1 + 4e-4 * rng.normal(size=(n // 3, d))).astype(np.float32)
    return 3 * features_ND


def plain(query_QD: np.ndarray, features_ND: np.ndarray) -> np.ndarray:
    """Cosines in float64, rounded to nine digits."""
    a_QD, b_ND = (x.astype(np.float64) for x in (query_QD, features_ND))
    length_QN = np.linalg.norm(a_QD, axis=1)[:, None] * np.linalg.norm(b_ND, axis=1)[None]
    return np.round(a_QD @ b_ND.T / np.maximum(length_QN, 1e-12), 9)


def first(cosine_N: np.ndarray, k: int) -> list[int]:
    """The k largest, equal ones by row, −inf never."""
    return [int(row) for row in np.argsort(-cosine_N, kind="stable")[:k] if cosine_N[row] > -np.inf]


@pytest.mark.parametrize("block", [7, 32, 4096])
@pytest.mark.parametrize("k", [1, 5, 40, 200])
def test_order_is_that_of_float64_and_ties_go_by_row(block: int, k: int) -> None:
    features_ND = tied()
    queries = Vectors.of(features_ND[::4])
    near = nearest_among(queries, Vectors.of(features_ND), k, block=block)
    cosine_QN = plain(features_ND[::4], features_ND)
    assert near.rows_NK.tolist() == [first(cosine_N, k) for cosine_N in cosine_QN]
    assert np.allclose(near.cosine_NK, -np.sort(-cosine_QN)[:, :k], atol=1e-6) and near.recall is None


def test_what_is_excluded_gives_its_place_to_the_next() -> None:
    features_ND = tied()
    vectors, group_N = Vectors.of(features_ND), np.arange(90) // 3
    near = nearest_among(vectors, vectors, 80, Exclusions(group_N, group_N, 0.6))
    cosine_NN = plain(features_ND, features_ND)
    cosine_NN[(group_N[:, None] == group_N) | (cosine_NN > 0.6)] = -np.inf
    for rows_K, cosine_N in zip(near.rows_NK, cosine_NN, strict=True):
        assert rows_K[rows_K >= 0].tolist() == first(cosine_N, 80)
    assert (near.rows_NK[:, -1] < 0).any() and (near.cosine_NK[near.rows_NK < 0] == -np.inf).all()


def test_every_caller_has_the_same_order() -> None:
    """Bags, look-alike sets and hard pools."""
    features_ND = tied()
    row_N = np.arange(90)
    vectors = Vectors.of(features_ND)
    expected_NK = nearest_among(vectors, vectors, 4, Exclusions(row_N, row_N, 0.9999)).rows_NK
    assert np.array_equal(nearest_neighbours(features_ND, 4, max_cosine=0.9999, block=16).rows_NK, expected_NK)
    sets = lookalike_sets(features_ND, 5).sets
    assert [members.tolist() for members in sets] == [
        [row, *near_K[near_K >= 0].tolist()] for row, near_K in enumerate(expected_NK)
    ]
    for row in (0, 31, 60):
        others = np.delete(row_N, row)
        pool, target = nearest_to_targets(features_ND[[row]], features_ND[others], 4)
        assert others[pool].tolist() == sorted(near for near in expected_NK[row] if near >= 0) and not target.any()


def test_a_picture_near_two_targets_belongs_to_the_nearer_and_of_equal_ones_to_the_first() -> None:
    others_MD = np.array([[1.0, 0.2], [0.2, 1], [1, 1]])
    assert [rows.tolist() for rows in nearest_to_targets(np.eye(2), others_MD, 3)] == [[0, 1, 2], [0, 1, 0]]


def test_no_neighbours_and_no_features() -> None:
    empty, three = Vectors.of(np.zeros((0, 4))), Vectors.of(np.eye(4)[:3])
    assert nearest_among(three, empty, 5).rows_NK.shape == (3, 0)
    assert nearest_among(three, three, 0).rows_NK.shape == (3, 0)
    assert nearest_among(empty, three, 2).rows_NK.shape == (0, 2)
    with pytest.raises(UsageError, match=r"features have shape \(4,\); expected a matrix with"):
        Vectors.of(np.ones(4))
