"""Candidate sets and ranks: by hand, and against a loop that says what is meant."""

from __future__ import annotations

import numpy as np
import pytest

from tellapart.errors import UsageError
from tellapart.evaluation.candidate_sets import CandidateSets, chance, lookalike_sets, random_pools, whole_sets
from tellapart.evaluation.retrieval import per_set, retrieve


def unit(array: np.ndarray) -> np.ndarray:
    return (array / np.linalg.norm(array, axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture
def features():
    rng = np.random.default_rng(0)
    image_ND = unit(rng.normal(size=(250, 16)))
    return unit(image_ND + 0.35 * rng.normal(size=(250, 16))), image_ND


def test_pools_are_consecutive_hundreds_without_the_incomplete_one():
    sets = random_pools(250)
    assert [pool.tolist() for pool in sets.sets] == [list(range(100)), list(range(100, 200))]
    assert len(sets) == 200 and sets.target_Q.tolist() == list(range(200)) and sets.name == "random100-consecutive"
    assert len(random_pools(99)) == 0 and len(random_pools(100)) == 100


def test_shuffled_pools_are_one_fixed_permutation():
    sets = random_pools(250, shuffled=True, seed=5)
    asked = sets.target_Q
    assert len(set(asked.tolist())) == 200 and not np.array_equal(asked, np.sort(asked))
    assert np.array_equal(asked, random_pools(250, shuffled=True, seed=5).target_Q)
    assert not np.array_equal(asked, random_pools(250, shuffled=True, seed=6).target_Q)
    assert sets.name == "random100-shuffled5"


def test_ranks_agree_with_the_definition(features):
    text_ND, image_ND = features
    found = retrieve(random_pools(250), text_ND, image_ND)
    for row in range(200):
        pool = np.arange(100) + row // 100 * 100
        score_K = text_ND[row] @ image_ND[pool].T
        assert found.rank_N[row] == np.sum(score_K > score_K[row % 100] + 1e-6)
        assert found.picked_N[row] == pool[score_K.argmax()]
    assert np.isnan(found.rank_N[200:]).all() and (found.picked_N[200:] == -1).all()
    assert np.isnan(found.hit(1)[200:]).all() and 0.3 < np.nanmean(found.hit(1)) < np.nanmean(found.hit(5)) < 1


def test_ties_are_hits_and_the_target_is_picked():
    image_ND = np.array([[1, 0], [1, 0], [0.8, 0.6]], dtype=np.float32)
    found = retrieve(whole_sets([[0, 1, 2]]), np.array([[1, 0]] * 3, dtype=np.float32), image_ND)
    assert found.hit(1).tolist() == [1, 1, 0] and found.picked_N.tolist() == [0, 1, 0]
    assert found.rank_N.tolist() == [0, 0, 2] and found.hit(5).tolist() == [1, 1, 1]


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan])
@pytest.mark.parametrize("side", ["texts", "pictures"])
def test_features_that_match_everything_are_refused(features, side, value):
    """Ties are hits: such a row would be found every time."""
    arrays = {"texts": features[0].copy(), "pictures": features[1].copy()}
    arrays[side][7] = value
    measured = {"texts": 200, "pictures": 250}  # 50 captions have no pool of 100
    with pytest.raises(UsageError, match=rf"1 of {measured[side]} {side} are zero, NaN or infinite \(first: row 7\)"):
        retrieve(random_pools(250), arrays["texts"], arrays["pictures"])


def test_pictures_that_are_all_alike_are_refused(features):
    with pytest.raises(UsageError, match="the features of all 250 pictures are identical"):
        retrieve(random_pools(250), features[0], np.repeat(features[1][:1], 250, 0))


def test_an_empty_caption_finds_nothing(features):
    found = retrieve(random_pools(250), features[1], features[1])
    lost = found.missed([3, 150])
    assert found.hit(1)[[3, 150]].tolist() == [1, 1] and lost.hit(1)[[3, 150]].tolist() == [0, 0]
    assert lost.rank_N[3] == 99 and lost.picked_N[3] != 3 and lost.recall(1) == found.recall(1) - 2 / 200


def test_a_difference_beyond_rounding_is_no_tie():
    image_ND = np.array([[1, 0], [1, 0]], dtype=np.float64)
    image_ND[0, 0] -= 1e-5
    found = retrieve(whole_sets([[0, 1]]), np.array([[1.0, 0]] * 2), image_ND)
    assert found.hit(1).tolist() == [0, 1]


def test_given_sets_ask_for_the_picture_at_the_target_position():
    image_ND = np.eye(4, dtype=np.float32)
    text_ND = image_ND[[1, 1, 2, 3]]  # the caption of picture 0 describes picture 1
    given = CandidateSets((np.array([3, 0, 1]), np.array([2, 3])), np.arange(2), np.array([0, 2]), "given")
    found = retrieve(given, text_ND, image_ND)
    assert found.picked_N.tolist() == [1, -1, 2, -1] and found.rank_N[0] == 1 and found.rank_N[2] == 0
    assert found.scores(0).tolist() == [0, 0, 1] and found.sets.size_Q.tolist() == [3, 2]


def test_a_target_outside_its_set_is_an_error():
    with pytest.raises(ValueError, match="Picture 5 is not among the candidates of its"):
        CandidateSets((np.array([1, 2]),), np.array([0]), np.array([5]))


def test_lookalikes_are_the_nearest_neighbours_target_first(features):
    _, image_ND = features
    sets = lookalike_sets(3 * image_ND, size=10)  # the length of a feature does not matter
    cosine_NN = image_ND @ image_ND.T
    for row, members in enumerate(sets.sets):
        order = [other for other in np.argsort(-cosine_NN[row]) if other != row]
        assert members.tolist() == [row, *order[:9]]


def test_copies_are_left_out_and_ties_come_in_order():
    image_ND = np.array([[1, 0], [1, 0], [0.8, 0.6], [0.8, -0.6], [0, 1]])
    assert [members.tolist() for members in lookalike_sets(image_ND, 3).sets] == [
        [0, 2, 3], [1, 2, 3], [2, 0, 1], [3, 0, 1], [4, 2, 0]
    ]  # fmt: skip


def test_few_pictures_make_smaller_sets():
    sets = lookalike_sets(np.eye(3), size=10)
    assert [len(members) for members in sets.sets] == [3, 3, 3]
    assert chance(sets, 3, 1).tolist() == pytest.approx([1 / 3] * 3) and chance(sets, 3, 5).tolist() == [1, 1, 1]


def test_chance_is_what_random_features_get():
    rng = np.random.default_rng(1)
    sets = random_pools(2000, 20)
    found = retrieve(sets, unit(rng.normal(size=(2000, 8))), unit(rng.normal(size=(2000, 8))))
    assert chance(sets, 2000, 1).mean() == pytest.approx(0.05)
    assert np.mean(found.hit(1)) == pytest.approx(0.05, abs=0.015)
    assert np.mean(found.hit(5)) == pytest.approx(0.25, abs=0.03)


def test_equal_neighbours_come_by_row_even_at_the_cut():
    """Equal cosines of features of other lengths; a cosine that is larger by a ten-thousandth goes first."""
    image_ND = np.array([[1, 0], [0.8, 0.6], [1.6, -1.2]])
    assert lookalike_sets(image_ND, 2).sets[0].tolist() == [0, 1]
    image_ND[2] = [0.8001, -0.59987]
    assert lookalike_sets(image_ND, 2).sets[0].tolist() == [0, 2]


def test_a_picture_without_features_is_refused():
    with pytest.raises(UsageError, match=r"1 of 3 rows of features are zero, NaN or infinite \(first: row 0\)"):
        lookalike_sets(np.array([[0.0, 0], [1, 0], [0, 1]]), 3)


def test_every_question_about_a_picture_counts():
    image_ND = np.eye(3, dtype=np.float32)
    text_ND = image_ND[[1, 1, 2]]  # the caption of picture 0 describes picture 1
    sets = whole_sets([[0, 1], [0, 2], [0, 1, 2]])
    found = retrieve(sets, text_ND, image_ND)
    assert found.rank_Q.tolist() == [1, 0, 0, 0, 1, 0, 0] and found.questions_N.tolist() == [3, 2, 2]
    assert found.hit(1).tolist() == pytest.approx([1 / 3, 1, 1]) and found.recall(1) == pytest.approx(5 / 7)
    assert found.rank_N.tolist() == pytest.approx([2 / 3, 0, 0]) and found.picked_N.tolist() == [1, 1, 2]
    assert chance(sets, 3, 1).tolist() == pytest.approx([(1 / 2 + 1 / 2 + 1 / 3) / 3, 5 / 12, 5 / 12])
    rows = per_set(found, "abc")
    assert [row["hit"] for row in rows] == [["b"], ["a", "c"], ["b", "c"]]
    assert [row["mean_rank"] for row in rows] == pytest.approx([1.5, 1, 4 / 3])


@pytest.mark.parametrize("rows", [1, 7, 32])
def test_a_large_pool_in_blocks_ranks_as_one_matrix_does(rows):
    """60 captions against 90 pictures, a third of which nobody asks for; with ties and copies."""
    rng = np.random.default_rng(0)
    image_ND = rng.standard_normal((90, 16)).astype(np.float32)
    image_ND[70:80] = image_ND[:10]
    image_ND /= np.linalg.norm(image_ND, axis=1, keepdims=True)
    text_ND = image_ND + 0.35 * rng.standard_normal(image_ND.shape).astype(np.float32)
    text_ND /= np.linalg.norm(text_ND, axis=1, keepdims=True)
    pool = CandidateSets((rng.permutation(90),), np.zeros(60, int), rng.permutation(90)[:60])
    score_NN = text_ND @ image_ND.T  # the plain way: all scores at once
    own_Q = score_NN[pool.target_Q, pool.target_Q]
    rank_Q = (score_NN[pool.target_Q] > own_Q[:, None] + 1e-6).sum(1)
    found = retrieve(pool, text_ND, image_ND, rows=rows)
    assert np.array_equal(found.rank_Q, rank_Q) and 0 < (rank_Q == 0).sum() < 60
    whole = retrieve(pool, text_ND, image_ND)
    assert np.array_equal(found.picked_Q, whole.picked_Q) and np.array_equal(found.rank_Q, whole.rank_Q)
    row = int(pool.target_Q[3])
    np.testing.assert_allclose(found.scores(3), score_NN[row, pool.sets[0]], atol=1e-6)
