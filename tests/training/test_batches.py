"""A batch is a function of seed and step; look-alikes that belong together come together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CLIPImageProcessor

from tellapart.bags.sampler import BagSampler, BatchRows, Sampler, ShuffleSampler
from tellapart.errors import UsageError
from tellapart.models import ranks
from tellapart.models.tokens import pad_rows
from tellapart.objectives import Contrastive
from tellapart.recipe.reading import check_recipe
from tellapart.scenes import Scenes
from tellapart.training.batches import TrainingSet
from tellapart.training.blip_augmentation import (
    BLIP_DRAWS,
    BLIP_OPERATIONS,
    TRIES,
    blip_augmented,
    blip_operation,
    resized_crop,
)
from tellapart.training.build import TrainingSetup
from tellapart.training.objective import train_features
from tellapart.training.pixels import TrainingPixels
from tellapart.training.runs import upstream
from tellapart.training.samplers import families
from tellapart.types import Item
from tellapart.utils.rng import ItemSeeds

LEARNER = SimpleNamespace(device="cpu")


def training_set(bags: list[list[int]] | None, batch_size: int = 10) -> TrainingSet:
    together = [np.asarray(bag) for bag in bags or ()]
    sampler = BagSampler(lambda epoch: together, batch_size, 3) if bags else ShuffleSampler(60, batch_size, 3)
    items = [scene.item() for scene in Scenes(60)]
    visual = np.arange(60, dtype=np.float32)[:, None]
    return TrainingSet(items, visual, None, LEARNER, sampler, seed=3)


def chosen(data: TrainingSet, step: int) -> list[int]:
    return data.batch(step).rows_B.tolist()


def test_an_epoch_shows_each_picture_once() -> None:
    for bags in (None, families([scene.item() for scene in Scenes(60)])):
        data = training_set(bags)
        first, second = ([i for step in steps for i in chosen(data, step)] for steps in (range(6), range(6, 12)))
        assert sorted(first) == sorted(second) == list(range(60))
        assert first != second


def test_a_batch_depends_on_the_step_alone() -> None:
    there_and_back, straight = training_set(None), training_set(None)
    chosen(there_and_back, 9)
    assert chosen(there_and_back, 4) == chosen(straight, 4)


def test_families_stay_together() -> None:
    data = training_set(families([scene.item() for scene in Scenes(60)]))
    for step in range(6):
        names = [item.truth.look_alikes for item in data.batch(step).items]
        assert sorted(names.count(name) for name in set(names)) == [5, 5]
    apart = [item.truth.look_alikes for item in training_set(None).batch(0).items]
    assert len(set(apart)) > 2


def test_families_are_of_scenes_only() -> None:
    with pytest.raises(UsageError, match="families"):
        families([Item("a.jpg", Scenes(1)[0])])


def test_the_parts_of_a_batch_are_the_batch() -> None:
    data = training_set(families([scene.item() for scene in Scenes(60)]))
    whole = data.batch(4)
    whole.tokens_RT = torch.arange(40).view(20, 2)  # two references a picture
    whole.valid_RT = whole.tokens_RT > 0
    whole.distractors_BK = torch.arange(30).view(10, 3)
    assert whole.split(1) == [whole] and whole.bag_B is not None
    parts = whole.split(3)
    assert [len(part.items) for part in parts] == [4, 4, 2] and all(part.step == 4 for part in parts)
    for name in ("rows_B", "visual", "tokens_RT", "valid_RT", "bag_B", "distractors_BK"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name)), name
    assert [item.id for part in parts for item in part.items] == [item.id for item in whole.items]


def test_what_is_drawn_for_an_item_does_not_depend_on_its_batch() -> None:
    """References, crops and hidden words of a picture are the same in any batch of the same step."""
    items = [scene.item() for scene in Scenes(12)]
    visual = np.random.default_rng(0).random((12, 3, 8, 8), dtype=np.float32)
    pixels = cast(TrainingPixels, SimpleNamespace(tensor=torch.from_numpy))
    rows = [[[10 * n + k, 7, 3, 8] for k in range(4)] for n in range(12)]
    learner = SimpleNamespace(device="cpu", pad=lambda rows: pad_rows(rows, 0))
    tokenizer = SimpleNamespace(all_special_ids=[0], unk_token_id=2)
    drawn: list[dict[str, Any]] = []
    for order in (range(12), [7, 3, 11, 0], [3]):
        sampler = cast(Sampler, lambda step, order=order: BatchRows(np.asarray(order)))
        how: dict[str, Any] = {"seed": 3, "captions_per_picture": 2, "augment": "crop+flip", "pixels": pixels}
        data = TrainingSet(items, visual, rows, learner, sampler, **how)
        batch = data.batch(5)
        assert batch.tokens_RT is not None and batch.valid_RT is not None
        hidden_RT, _ = Contrastive(0.5).drop_words(batch.tokens_RT, batch.valid_RT, tokenizer, batch.seeds)
        place = list(order).index(3)
        drawn.append(
            {
                "references": batch.tokens_RT[2 * place : 2 * place + 2].tolist(),
                "hidden": hidden_RT[2 * place : 2 * place + 2].tolist(),
                "crop": batch.visual[place].tolist(),
            }
        )
    assert drawn[0] == drawn[1] == drawn[2]
    assert any(2 in row for row in drawn[0]["hidden"])


def drawn(
    *tries: tuple[float, float, float, float], mirror: float = 0.9, rest: tuple[float, ...] = (0, 0.9, 0) * 2
) -> list[float]:
    """Random numbers for `blip_augmented`: of its crops, whether it is mirrored, and of two operations."""
    numbers = [number for one in tries for number in one]
    return [*numbers, *[0.5] * (4 * TRIES - len(numbers)), mirror, *rest]


def test_blips_crops_are_of_half_the_area_or_more() -> None:
    rng = np.random.default_rng(0)
    shares, ratios = [], []
    for width, height in ((640, 480), (480, 640), (500, 500)):
        for _ in range(300):
            left, upper, right, lower = resized_crop((width, height), rng.random(BLIP_DRAWS).tolist())
            assert 0 <= left < right <= width and 0 <= upper < lower <= height
            shares.append((right - left) * (lower - upper) / (width * height))
            ratios.append((right - left) / (lower - upper))
    assert 0.495 < min(shares) < 0.52 and max(shares) > 0.97
    assert 0.745 < min(ratios) < 0.8 and 1.25 < max(ratios) < 1.34
    assert resized_crop((640, 480), drawn((0.0, 0.5, 0.0, 0.999))) == (0, 88, 392, 480)  # √(640·480/2) = 391.9
    assert resized_crop((1000, 100), drawn()) == (433, 0, 566, 100), "none of ten fits: the middle, 4:3"


def test_blips_augmentation_by_hand() -> None:
    """Each operation on a picture of four colours; no operation, no flip and the whole picture leave it as it is."""
    colours = np.array([[[10, 0, 0], [60, 0, 0]], [[110, 0, 0], [200, 0, 0]]], np.uint8)
    image = Image.fromarray(colours.repeat(40, 0).repeat(40, 1))
    whole = (1.0, 0.5, 0.0, 0.0)
    assert np.array_equal(blip_augmented(image, (80, 80), drawn(whole)), image)
    mirrored = blip_augmented(image, (80, 80), drawn(whole, mirror=0.1))
    assert np.array_equal(np.asarray(mirrored), np.asarray(image)[:, ::-1])
    at = [BLIP_OPERATIONS.index("translate_x"), BLIP_OPERATIONS.index("translate_y")]
    rest = ((at[0] + 0.5) / 10, 0.1, 0.1, (at[1] + 0.5) / 10, 0.1, 0.9)
    shifted = np.asarray(blip_augmented(image, (80, 80), drawn(whole, rest=rest)))
    assert np.array_equal(shifted[5:, :75], np.asarray(image)[:-5, 5:])
    assert (shifted[:5] == 128).all() and (shifted[5:, 75:] == 128).all()

    def changed(name: str, sign: float = 1.0) -> np.ndarray:
        return np.asarray(blip_operation(image, name, sign))

    for name in ("identity", "brightness", "sharpness"):
        assert np.array_equal(changed(name), image), name
    assert changed("autocontrast")[..., 0].min() == 0 and changed("autocontrast")[..., 0].max() == 255
    assert len(np.unique(changed("equalize")[..., 0])) == 4 and changed("equalize")[..., 0].max() == 255
    for name in ("shear_x", "shear_y", "rotate"):
        assert not np.array_equal(changed(name), changed(name, -1.0)) and (changed(name) == 128).all(-1).any(), name
    assert (changed("shear_x")[79, -11:] == 128).all() and (changed("shear_x")[0] != 128).any()  # 0.15 · 79 = 11.9


def test_blips_augmentation_of_a_picture_does_not_depend_on_its_batch() -> None:
    items = [scene.item() for scene in Scenes(6)]
    processor = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    learner = SimpleNamespace(device="cpu", processor=processor, name="x")
    learner.pixels = lambda images: processor(images=images, return_tensors="pt")["pixel_values"]
    pixels = TrainingPixels(cast(Any, learner))
    assert pixels.as_bytes
    found = []
    for order in (range(6), [4, 3], [3]):
        seeds = ItemSeeds(tuple(items[row].id for row in order), 3, 5)
        rows = pixels.augmented([items[row].picture for row in order], seeds)
        assert rows.shape == (len(order), 32, 32, 3) and rows.dtype == np.uint8
        found.append(rows[list(order).index(3)])
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


def test_a_rank_makes_the_pixels_of_its_share_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And they are those that one process makes, crops included, also in parts."""
    made: list[int] = []

    def tensor(rows: np.ndarray) -> torch.Tensor:
        made.append(len(rows))
        return torch.from_numpy(rows)

    pixels = cast(TrainingPixels, SimpleNamespace(tensor=tensor))
    visual = np.random.default_rng(0).random((60, 3, 8, 12)).astype(np.float32)
    items = [scene.item() for scene in Scenes(60)]
    data = TrainingSet(
        items, visual, None, LEARNER, ShuffleSampler(60, 13, 3), seed=3, augment="crop+flip", pixels=pixels
    )
    whole_B3HW = data.batch(2).visual
    assert made == [13]
    found = []
    for rank in range(4):
        monkeypatch.setattr(ranks, "count", lambda: 4)
        monkeypatch.setattr(ranks, "index", lambda rank=rank: rank)
        made.clear()
        parts = data.batch(2)[ranks.share(13)].split(2)
        assert not made, "nothing is made before it is read"
        found += [part.visual for part in parts for _ in range(2)][::2]
        assert sum(made) == len(range(13)[ranks.share(13)])
    assert torch.equal(torch.cat(found), whole_B3HW)


def test_all_rewarded_captions_have_their_own_nearest_pictures_as_distractors(tiny_recipe: dict[str, Any]) -> None:
    """By the scorer's features, whether or not those pictures are in the batch; nothing more is captioned."""
    training = {**tiny_recipe["training"], "batches": "bags", "batch_size": 20}
    objective = {"kind": "reinforce", "decoding": {"kind": "sample", "samples": 2, "max_tokens": 6}}
    table = {**tiny_recipe, "objective": objective, "training": training, "bags": {"kind": "hard", "hard": 3}}
    setup = TrainingSetup(check_recipe(table, "test"), upstream)
    assert setup.scorer is not None
    features_ND, data = train_features(setup, setup.scorer), setup.training_set()
    cosine_NN = features_ND.astype(np.float64) @ features_ND.T.astype(np.float64)
    np.fill_diagonal(cosine_NN, -np.inf)
    cosine_NN[cosine_NN > 0.9999] = -np.inf  # copies
    inside = 0
    for step in range(3):
        batch = data.batch(step)
        assert len(batch.rows_B) == 20 and batch.distractors_BK is not None
        for row, near_K in zip(batch.rows_B.tolist(), batch.distractors_BK.tolist(), strict=True):
            kth = np.sort(cosine_NN[row])[-3]
            assert len(set(near_K)) == 3 and all(cosine_NN[row, near] >= kth - 1e-6 for near in near_K)
            inside += len(set(near_K) & set(batch.rows_B.tolist()))
    assert inside < 3 * 20 * 3, "else they need not come from elsewhere"
    contrary = {**table, "objective": {**objective, "rewards": [{"kind": "cider"}]}}
    with pytest.raises(UsageError, match=r"bags.kind = 'hard' adds distractors, but no reward here compares"):
        check_recipe(contrary, "test")
