"""The approximate search against the exact one, with the near-duplicate filter and without."""

from __future__ import annotations

import numpy as np
import pytest

from tellapart.bags.mine import mine_bags
from tellapart.features.all_neighbours import nearest_neighbours
from tellapart.features.approximate import measured_search
from tellapart.features.nearest import Neighbours

pytest.importorskip("faiss")
N, K = 3000, 10


def scattered(n: int = N, d: int = 16) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)


def crowded(copies: int = 60) -> np.ndarray:
    """Pictures in crowds of near-duplicates (cosines above 0.99), and the crowds scattered."""
    centre_CD = scattered(N // copies, 32)
    return np.repeat(centre_CD, copies, 0) + 0.05 * np.random.default_rng(1).normal(size=(N, 32)).astype(np.float32)


def shared(exact: Neighbours, found: Neighbours) -> float:
    pairs = zip(exact.rows_NK, found.rows_NK, strict=True)
    return float(np.mean([len(np.intersect1d(a[a >= 0], b)) / max(1, (a >= 0).sum()) for a, b in pairs]))


def test_it_says_what_it_finds(capsys: pytest.CaptureFixture[str]) -> None:
    exact, found = (nearest_neighbours(scattered(), K, approximate=way) for way in (False, True))
    share = shared(exact, found)
    assert found.recall == pytest.approx(share, abs=0.02) and 0.2 < share < 1
    told = capsys.readouterr().err
    assert f"finds {100 * found.recall:.1f}% of the exact 10 nearest, measured on 2,000 pictures" in told
    assert "s to build" in told and "s to search" in told
    assert (found.rows_NK != np.arange(N)[:, None]).all() and (np.diff(found.cosine_NK) <= 0).all()


def test_near_duplicates_give_their_places_to_others(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the first 22 that FAISS is asked for, all are near-duplicates: more are asked for, until others come."""
    features_ND = crowded()
    exact, found = (nearest_neighbours(features_ND, K, approximate=way, max_cosine=0.9) for way in (False, True))
    assert found.cosine_NK.max() <= 0.9 + 2e-6 and (found.rows_NK[:, 0] >= 0).all()
    assert found.recall == pytest.approx(shared(exact, found), abs=0.05) and found.recall > 0.3
    assert "fewer than" not in capsys.readouterr().err
    bags = mine_bags(features_ND, 3, approximate=True, max_cosine=0.9)
    assert len(bags) > N / 2 and max(bag.similarity for bag in bags) <= 0.9 + 2e-6


@pytest.mark.long
def test_what_the_filter_leaves_too_few_of_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A crowd so large that none of the pictures that may be asked for is another's."""
    features_ND = crowded(1500)
    found = nearest_neighbours(features_ND, K, approximate=True, max_cosine=0.9)
    short = int((found.rows_NK[:, -1] < 0).sum())
    assert short > 0 and (found.cosine_NK[found.rows_NK < 0] == -np.inf).all()
    told = f"approximate search: {short:,} of 3,000 pictures have fewer than 10 neighbours with a cosine of"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(50, 8), (3000, 7), (12, 4)])
def test_few_pictures_and_odd_features_are_compared_one_by_one(shape: tuple[int, int]) -> None:
    features_ND = scattered(*shape)
    found, exact = (nearest_neighbours(features_ND, 20, approximate=way, progress=False) for way in (True, False))
    assert found.recall == 1 and np.array_equal(found.rows_NK, exact.rows_NK)


def test_some_queries_find_what_all_of_them_find() -> None:
    features_ND = scattered(4000)
    unit_ND = features_ND / np.linalg.norm(features_ND, axis=1, keepdims=True)
    every, *_ = measured_search(unit_ND, K, progress=False)
    some, *_ = measured_search(unit_ND, K, progress=False, queries=500)
    row_M = np.sort(np.random.default_rng(0).choice(4000, 500, replace=False))
    assert np.array_equal(some.rows_NK, every.rows_NK[row_M]) and some.recall is not None and 0.2 < some.recall < 1
