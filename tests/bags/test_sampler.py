"""Whole bags in every batch, an epoch that shows each picture once, and steps that need no memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tellapart.bags.sampler import (
    BagSampler,
    BatchRows,
    HardNegativeSampler,
    Sampler,
    ShuffleSampler,
    bag_size_at,
    curriculum,
    random_bags,
)
from tellapart.errors import UsageError
from tellapart.features.all_neighbours import nearest_neighbours
from tellapart.recipe.schema import BAGCURRI
from tellapart.scenes import Scenes
from tellapart.training.batches import TrainingSet

N = 130


@pytest.fixture(scope="module")
def rows_NK() -> np.ndarray:
    return nearest_neighbours(np.random.default_rng(0).normal(size=(N, 6)), 60).rows_NK


def bags_of(choice: BatchRows) -> list[list[int]]:
    assert choice.bag_B is not None
    return [choice.rows_B[choice.bag_B == bag].tolist() for bag in np.unique(choice.bag_B)]


def test_the_curriculum_is_the_papers() -> None:
    sizes = [bag_size_at(BAGCURRI, epoch) for epoch in range(25)]
    assert sizes == [2] * 3 + [3] * 5 + [5] * 2 + [7] * 2 + [10] * 2 + [15] * 3 + [20] * 8


def test_a_batch_holds_as_many_whole_bags_as_fit(rows_NK: np.ndarray) -> None:
    sampler = BagSampler(curriculum(rows_NK, ((0, 3), (2, 7))), 20, seed=1)
    for step in range(12):  # 43 bags of 3: seven batches of six
        assert sorted(map(len, bags_of(sampler(step)))) == [3] * 6
    for step in range(14, 20):  # 18 bags of 7: nine batches of two
        assert sorted(map(len, bags_of(sampler(step)))) == [7] * 2


def test_an_epoch_shows_no_picture_twice_and_epochs_differ(rows_NK: np.ndarray) -> None:
    sampler = BagSampler(curriculum(rows_NK, ((0, 4),)), 20, seed=1)
    epochs = [np.concatenate([sampler(step).rows_B for step in range(6 * e, 6 * e + 6)]) for e in (0, 1)]
    for rows in epochs:  # 32 bags of 4, five in a batch
        assert len(rows) == len(set(rows.tolist())) == 120
    assert epochs[0].tolist() != epochs[1].tolist()


def test_bags_are_look_alikes_and_the_loose_come_at_random(rows_NK: np.ndarray) -> None:
    plan = curriculum(rows_NK[:, :8], ((0, 5),))
    made = plan(0)
    whole = {frozenset(bag) for bag in made.bags_MS.tolist()}
    assert len(made.loose_L) >= 10
    sampler = BagSampler(plan, 10, seed=2)
    seen = [[frozenset(bag) for step in range(13 * e, 13 * e + 13) for bag in bags_of(sampler(step))] for e in (0, 1)]
    for bags in seen:
        others = [bag for bag in bags if bag not in whole]
        assert others and all(bag <= set(made.loose_L.tolist()) for bag in others)
    assert set(seen[0]) - whole != set(seen[1]) - whole


def test_what_becomes_of_the_pictures_is_told_once(rows_NK: np.ndarray) -> None:
    told: list[str] = []
    sampler = BagSampler(curriculum(rows_NK, ((0, 3), (1, 5)), told.append), 20, seed=0)
    for step in range(20):
        sampler(step)
    assert len(told) == 2 and told[0].startswith("bags of 3: ") and told[1].startswith("bags of 5: ")


@pytest.mark.parametrize("kind", ["shuffled", "curriculum", "random", "hard", "families"])
def test_a_step_needs_no_memory(rows_NK: np.ndarray, kind: str) -> None:
    def make() -> Sampler:
        families = [np.arange(start, min(start + 4 + start % 3, N)) for start in range(0, N, 7)]
        return {
            "shuffled": lambda: ShuffleSampler(N, 20, 3),
            "curriculum": lambda: BagSampler(curriculum(rows_NK, ((0, 2), (1, 3), (3, 20))), 20, 3),
            "random": lambda: BagSampler(random_bags(N, ((0, 2), (1, 3))), 20, 3),
            "hard": lambda: HardNegativeSampler(ShuffleSampler(N, 20, 3), rows_NK, 3, 20),
            "families": lambda: BagSampler(lambda epoch: families, 20, 3),
        }[kind]()

    straight = make()
    steps = [straight(step) for step in range(40)]
    jumper = make()
    for step in (33, 2, 39, 7, 8):  # resumed there, in the middle of an epoch, and back
        found = jumper(step)
        assert found.rows_B.tolist() == steps[step].rows_B.tolist()
        if found.bag_B is not None:
            assert found.bag_B.tolist() == steps[step].bag_B.tolist()


def test_uneven_bags_are_never_split() -> None:
    bags = [np.arange(start, start + size) for start, size in ((0, 5), (5, 3), (8, 6), (14, 2), (16, 7), (23, 4))]
    sampler = BagSampler(lambda epoch: bags, 8, seed=0)
    known = {tuple(bag.tolist()) for bag in bags}
    for step in range(30):
        choice = sampler(step)
        assert len(choice.rows_B) <= 8 and {tuple(bag) for bag in bags_of(choice)} <= known


def test_random_bags_have_nothing_in_common() -> None:
    sampler = BagSampler(random_bags(N, ((0, 5),)), 20, seed=4)
    first, second = (sorted(map(tuple, bags_of(sampler(step)))) for step in (0, 6))
    assert len(first) == 4 and first != second


def test_every_picture_has_its_own_hard_distractors_and_an_epoch_is_no_longer(rows_NK: np.ndarray) -> None:
    """Paper 3, appendix D.2; before, 9 to 16 percent of the rewarded captions had their own k in the batch."""
    plain, hard = ShuffleSampler(N, 20, 3), HardNegativeSampler(ShuffleSampler(N, 20, 3), rows_NK, 5, 20)
    targets: list[int] = []
    for step in range(N // 20):
        choice = hard(step)
        assert choice.rows_B.tolist() == plain(step).rows_B.tolist() and choice.bag_B is None
        assert (
            choice.distractors_BK is not None and choice.distractors_BK.tolist() == rows_NK[choice.rows_B, :5].tolist()
        )
        targets += choice.rows_B.tolist()
    assert len(set(targets)) == len(targets) == N // 20 * 20


def test_bags_that_do_not_fit_are_told(rows_NK: np.ndarray) -> None:
    with pytest.raises(UsageError, match="a bag of 7 does not fit into a batch of 6"):
        BagSampler(curriculum(rows_NK, ((0, 7),)), 6, 0)(0)
    with pytest.raises(
        UsageError, match="there are no bags to fill a batch with, because there are fewer pictures than the bag size"
    ):
        BagSampler(random_bags(3, ((0, 7),)), 10, 0)(0)
    with pytest.raises(UsageError, match="a target with 6 hard distractors does not fit into a batch of 6"):
        HardNegativeSampler(ShuffleSampler(N, 6, 0), rows_NK, 6, 6)
    with pytest.raises(UsageError, match=r"bags\.hard: expected at most 60"):
        HardNegativeSampler(ShuffleSampler(N, 80, 0), rows_NK, 61, 80)


def test_the_batches_of_before_are_those_of_now() -> None:
    """Runs that people have go on as they began: shuffled order, and families of one size."""
    items = [scene.item() for scene in Scenes(60)]
    visual = np.zeros((60, 1), np.float32)
    bags = [list(range(start, start + 5)) for start in range(0, 60, 5)]
    for own, many in ((None, np.arange(60)[:, None]), (bags, np.array(bags))):
        sampler = ShuffleSampler(60, 10, 3) if own is None else BagSampler(lambda epoch, bags=many: list(bags), 10, 3)
        data = TrainingSet(items, visual, None, SimpleNamespace(device="cpu"), sampler, seed=3)
        for step in (0, 5, 6, 17):
            order = many[np.random.default_rng([3, step // 6]).permutation(len(many))].ravel()
            wanted = np.sort(order[step % 6 * 10 :][:10])
            batch = data.batch(step)
            assert batch.rows_B.tolist() == wanted.tolist()
            assert (batch.bag_B is None) == (own is None)
            if own is not None:
                assert len(np.unique(batch.bag_B.numpy())) == 2
