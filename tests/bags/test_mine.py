"""Bags against a plain reading of the paper, and against data that mean no good."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tellapart.bags.mine import Similarity, curate_bags, mine_bags
from tellapart.bags.multimodal import multimodal
from tellapart.bags.training_bags import training_bags
from tellapart.errors import MissingExtra, UsageError
from tellapart.features.all_neighbours import nearest_neighbours

sys.path.insert(0, str(Path(__file__).parent))
from plain_bags import algorithm_1, algorithm_2, cosines, training


def clustered(n: int, d: int = 24, seed: int = 0) -> np.ndarray:
    """Pictures in clusters, some of them exact copies: ties and crowds."""
    rng = np.random.default_rng(seed)
    centre_CD = rng.normal(size=(max(2, n // 12), d))
    features_ND = (centre_CD[rng.integers(0, len(centre_CD), n)] + 0.4 * rng.normal(size=(n, d))).astype(np.float32)
    features_ND[n // 3 : n // 3 + 12] = features_ND[3]
    return features_ND


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("block", [16, 61, 4096])
def test_bags_are_those_of_the_paper(size: int, block: int) -> None:
    features_ND = clustered(200)
    bags, alphas = algorithm_1(cosines(features_ND), size)
    mined = mine_bags(features_ND, size, block=block)
    assert [list(bag.ids) for bag in mined] == bags
    assert [bag.similarity for bag in mined] == pytest.approx(alphas, abs=1e-8)
    assert [list(bag.ids) for bag in curate_bags(mined)] == algorithm_2(bags, alphas)


def test_training_bags_are_those_of_the_paper() -> None:
    features_ND = clustered(150, seed=3)
    for size, top in ((2, 200), (5, 20), (20, 40)):
        found = training_bags(nearest_neighbours(features_ND, top).rows_NK, size)
        bags, loose = training(cosines(features_ND), size, top)
        assert found.bags_MS.tolist() == bags and found.loose_L.tolist() == loose
        assert sorted([*found.bags_MS.ravel().tolist(), *loose]) == list(range(150))
    assert f"{len(loose):,} pictures without free look-alikes" in found.line()


def test_all_pairs_are_another_similarity() -> None:
    features_ND = clustered(60)
    cosine_NN = cosines(features_ND)
    for bag in mine_bags(features_ND, 4, similarity="pairs"):
        pairs = [cosine_NN[a, b] for a in bag.ids for b in bag.ids if a < b]
        assert bag.similarity == pytest.approx(np.mean(pairs), abs=1e-8)


def test_picture_and_text_are_joined() -> None:
    rng = np.random.default_rng(1)
    image_ND, captions = clustered(80), [rng.normal(size=(1 + n % 3, 8)).astype(np.float32) for n in range(80)]
    joined = np.concatenate([image_ND, np.stack([texts.mean(0) for texts in captions])], axis=1)
    bags, _ = algorithm_1(cosines(joined), 3)
    assert [list(bag.ids) for bag in mine_bags(image_ND, 3, texts_ND=captions)] == bags
    assert bags != algorithm_1(cosines(image_ND), 3)[0]
    with pytest.raises(UsageError, match="pictures, got 79"):
        multimodal(image_ND, captions[:79])
    with pytest.raises(UsageError, match=r"1 pictures have no caption \(first: row 5\)"):
        multimodal(image_ND, [*captions[:5], np.zeros((0, 8)), *captions[6:]])


def test_the_limit_is_of_the_similarity_to_the_target() -> None:
    """Paper 3, footnote 8: two distractors may be as alike as they like."""
    features_ND = clustered(120)
    cosine_NN = cosines(features_ND)
    bags = mine_bags(features_ND, 3, max_cosine=0.8)
    assert len(bags) == 120
    for bag in bags:
        query, *others = bag.ids
        allowed = [k for k in np.argsort(-cosine_NN[query], kind="stable") if cosine_NN[query, k] <= 0.8]
        assert np.allclose(cosine_NN[query, others], cosine_NN[query, allowed[:2]], atol=1e-5)
    assert max(cosine_NN[bag.ids[1], bag.ids[2]] for bag in bags) > 0.9
    with pytest.raises(UsageError, match="max_cosine_of: expected one of target, pairs, got 'all'"):
        mine_bags(features_ND, 3, max_cosine=0.8, max_cosine_of="all")  # type: ignore[arg-type]


def test_the_filter_keeps_near_duplicates_apart() -> None:
    features_ND = clustered(120)
    cosine_NN = cosines(features_ND)
    bags = mine_bags(features_ND, 3, max_cosine=0.8, max_cosine_of="pairs")
    assert 0 < len(bags) <= 120
    for bag in bags:
        query, first = bag.ids[:2]
        assert max(cosine_NN[a, b] for a in bag.ids for b in bag.ids if a < b) <= 0.8 + 1e-6
        nearer = [k for k in range(120) if k != query and cosine_NN[query, first] < cosine_NN[query, k] <= 0.8 - 1e-6]
        assert not nearer, "the nearest that is allowed goes first"


@pytest.mark.parametrize("similarity", ["query", "pairs"])
def test_pictures_that_are_too_unlike_are_not_put_together(similarity: Similarity) -> None:
    features_ND = clustered(90, seed=5)
    cosine_NN = cosines(features_ND)
    everything = mine_bags(features_ND, 3, similarity=similarity)
    mined = mine_bags(features_ND, 3, similarity=similarity, min_cosine=0.85)
    pairs = {"query": ((0, 1), (0, 2)), "pairs": ((0, 1), (0, 2), (1, 2))}[similarity]
    alike = [bag for bag in everything if min(cosine_NN[bag.ids[a], bag.ids[b]] for a, b in pairs) >= 0.85]
    assert mined == alike and 0 < len(alike) < len(everything)


def test_copies_by_content_are_used_once() -> None:
    features_ND = clustered(50)
    keys = [f"k{n // 2}" for n in range(50)]
    bags = mine_bags(features_ND, 3, keys=keys, ids=[f"{n}.jpg" for n in range(50)])
    used = {int(id_.removesuffix(".jpg")) for bag in bags for id_ in bag.ids}
    assert len(bags) == 25 and used <= set(range(0, 50, 2))
    with pytest.raises(UsageError, match=r"bags of 3 need at least 3 distinct pictures, got 1 \(50 including copies\)"):
        mine_bags(features_ND, 3, keys=["same"] * 50)


@pytest.mark.parametrize("block", [32, 4096])
def test_order_is_that_of_float64(block: int) -> None:
    """Cosines that differ in the eighth digit, which float32 does not tell apart."""
    rng = np.random.default_rng(2)
    features_ND = (1 + 4e-4 * rng.normal(size=(90, 16))).astype(np.float32)
    bags, _ = algorithm_1(cosines(features_ND), 6)
    assert [list(bag.ids) for bag in mine_bags(features_ND, 6, block=block)] == bags


def test_equal_pictures_come_in_their_order() -> None:
    bags = mine_bags(np.ones((30, 4)), 3, block=7)
    assert [bag.ids for bag in bags[:4]] == [(0, 1, 2), (1, 0, 2), (2, 0, 1), (3, 0, 1)]
    assert all(bag.similarity == 1 for bag in bags)
    assert [bag.ids for bag in curate_bags(bags)] == [(0, 1, 2)]


@pytest.mark.parametrize(
    ("features", "size", "more", "told"),
    [
        (np.ones((2, 3)), 3, {}, "distinct pictures, got 2"),
        (np.ones((5, 3)), 1, {}, "bag size: expected at least 2, got 1"),
        (
            np.array([[1.0, 2], [np.nan, 1], [0, 1]]),
            2,
            {},
            r"1 of 3 rows of features are zero, NaN or infinite \(first: row 1\)",
        ),
        (np.array([[1.0, 2], [0, 0], [0, 1]]), 2, {}, r"zero, NaN or infinite \(first: row 1\)"),
        (np.array([[1.0, 2], [1, np.inf], [0, 1]]), 2, {}, r"zero, NaN or infinite \(first: row 1\)"),
        (np.ones((5, 3)), 2, {"similarity": "mean"}, "similarity: expected one of query, pairs, got 'mean'"),
        (np.ones((5, 3)), 2, {"max_cosine": 80}, "max_cosine: expected a cosine such as 0.8, got 80"),
        (np.ones((5, 3)), 2, {"ids": ["a"]}, "1 ids for 5 rows"),
        (np.ones((5, 3)), 2, {"keys": ["a"]}, "got 1 for 5 pictures"),
        (np.ones(5), 2, {}, r"features have shape \(5,\)"),
    ],
)
def test_what_cannot_be_mined_is_told(features: np.ndarray, size: int, more: dict, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        mine_bags(features, size, **more)


def test_neighbours_do_not_depend_on_the_block() -> None:
    features_ND = clustered(300, seed=5)
    whole = nearest_neighbours(features_ND, 40)
    for block in (32, 100):
        part = nearest_neighbours(features_ND, 40, block=block)
        assert np.array_equal(part.rows_NK, whole.rows_NK) and np.allclose(part.cosine_NK, whole.cosine_NK, atol=1e-6)
    assert whole.recall is None and (whole.rows_NK != np.arange(300)[:, None]).all()


def test_without_faiss_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"tellapart\[faiss\]"):
        nearest_neighbours(np.ones((10, 2)), 3, approximate=True)


@pytest.mark.data
def test_bags_of_real_photos_are_those_of_the_paper() -> None:
    from tellapart.data import open_data

    photos = open_data(f"flickr8k:{os.environ.get('TELLAPART_DATA', '../shared/data')}/flickr8k")[:2000]
    small = [np.asarray(item.picture.image().resize((12, 12)), np.float32).ravel() for item in photos]
    features_ND = np.stack(small) / 127.5 - 1
    cosine_NN = cosines(features_ND)
    for size in (3, 5):
        bags, alphas = algorithm_1(cosine_NN, size)
        mined = mine_bags(features_ND, size)
        assert [list(bag.ids) for bag in mined] == bags
        assert [list(bag.ids) for bag in curate_bags(mined)] == algorithm_2(bags, alphas)
