"""Neighbours of neighbours: what two clusters of each picture miss is found, the same in any number of parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.bags import features as synthetic
from tellapart.bags.cluster_sizes import QUERIES, Sizes
from tellapart.bags.feature_shards import FeatureShards
from tellapart.bags.large_search import LargeSearch
from tellapart.bags.refinement import Round
from tellapart.bags.search_recall import recall
from tellapart.features.all_neighbours import nearest_neighbours

N, D, FILES = 12_000, 128, (5000, 1, 6999)
SIZES = Sizes(60, N, nearest=2, together=7)


@pytest.fixture(scope="module")
def features_ND() -> np.ndarray:
    return synthetic(N, uneven=True)[:, :D]


@pytest.fixture(scope="module")
def folder(features_ND: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("features")
    for number, part_ND in enumerate(np.split(features_ND, np.cumsum(FILES)[:-1])):
        np.save(where / f"{number}.npy", part_ND)
    return where


@pytest.fixture(scope="module")
def refined(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LargeSearch:
    return mined(folder, tmp_path_factory.mktemp("work"))


def mined(folder: Path, work: Path, sizes: Sizes = SIZES, **options: Any) -> LargeSearch:
    search = LargeSearch(work, FeatureShards.open(folder), 6, sizes, **options)
    search.run(progress=False)
    return search


def pairs_of(search: LargeSearch) -> np.ndarray:
    return np.concatenate([search.load(search.result, shard) for shard in range(len(FILES))])


@pytest.mark.long
def test_rounds_find_what_two_clusters_miss(folder: Path, tmp_path: Path, refined: LargeSearch) -> None:
    tops = (2, 4, 6)
    assert max(recall(mined(folder, tmp_path, rounds=0), tops, 1000, progress=False)) < 0.8
    assert min(recall(refined, tops, 1000, progress=False)) > 0.95


def test_cosines_and_order_are_those_of_the_exact_search(features_ND: np.ndarray, refined: LargeSearch) -> None:
    pair_NK, exact = pairs_of(refined), nearest_neighbours(features_ND, 6, approximate=False, progress=False)
    whole_N = (np.sort(pair_NK["row"], 1) == np.sort(exact.rows_NK, 1)).all(1)
    assert whole_N.mean() > 0.8
    assert np.array_equal(pair_NK["row"][whole_N], exact.rows_NK[whole_N])
    assert np.allclose(pair_NK["cosine"][whole_N], exact.cosine_NK[whole_N], rtol=0, atol=2e-6)
    assert (pair_NK["row"] != np.arange(N)[:, None]).all()


@pytest.mark.long
def test_what_is_too_near_stays_out(folder: Path, tmp_path: Path) -> None:
    limit = 0.6
    search = mined(folder, tmp_path, max_cosine=limit)
    pair_NK = pairs_of(search)
    there_NK = pair_NK["row"] >= 0
    assert there_NK.mean() > 0.9 and pair_NK["cosine"][there_NK].max() <= limit + 1e-6
    assert recall(search, (6,), 500, progress=False)[0] > 0.8


@pytest.mark.long
def test_an_interrupted_round_goes_on_where_it_was(
    folder: Path, tmp_path: Path, refined: LargeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    improve, done = LargeSearch.improve, []

    def interrupted(self: LargeSearch, number: int, group: int) -> None:
        if len(done) == 12:  # in the middle of the second round
            raise KeyboardInterrupt
        improve(self, number, group)
        done.append((number, group))

    with monkeypatch.context() as patch:
        patch.setattr(LargeSearch, "improve", interrupted)
        with pytest.raises(KeyboardInterrupt):
            mined(folder, tmp_path)
        assert {number for number, _ in done} == {1, 2}
    before, again = set(done), []

    def counted(self: LargeSearch, number: int, group: int) -> None:
        again.append((number, group))
        improve(self, number, group)

    monkeypatch.setattr(LargeSearch, "improve", counted)
    search = mined(folder, tmp_path)
    assert again and not before & set(again)
    assert np.array_equal(pairs_of(search), pairs_of(refined))
    assert len(list((tmp_path / "by-place").glob("round-*"))) == 1, "only the last round's neighbours stay"


@pytest.mark.long
def test_tasks_in_any_order_find_the_same(folder: Path, tmp_path: Path, refined: LargeSearch) -> None:
    def backwards(search: LargeSearch, name: str, numbers: Any) -> Any:
        for number in reversed(numbers):
            replace(search).perform(name, number)  # another worker: nothing read before
            yield

    search = LargeSearch(tmp_path, FeatureShards.open(folder), 6, SIZES)
    search.run(progress=False, spread=backwards)
    assert np.array_equal(pairs_of(search), pairs_of(refined))


@pytest.mark.long
def test_a_block_is_compared_with_no_more_at_once_than_memory_allows(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    nearest = Round._nearest

    def watched(self: Round, own_B: np.ndarray, found_M: np.ndarray, k: int) -> np.ndarray:
        seen.append((len(own_B), len(found_M)))
        return nearest(self, own_B, found_M, k)

    monkeypatch.setattr(Round, "_nearest", watched)
    search = mined(folder, tmp_path, replace(SIZES, candidates=600), rounds=2)
    assert max(found for _, found in seen) <= 600 and min(own for own, _ in seen) < QUERIES
    assert recall(search, (6,), 500, progress=False)[0] > 0.8
