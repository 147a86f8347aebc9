"""A result of each part of the code that decides what a recipe becomes, beside the part's version.

Where one of these fails, the same recipe gives other results than before: raise the part's number in
``src/tellapart/utils/versions.py`` and put the new result here with it, so that older runs are told apart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tellapart.bags.sampler import BagSampler, HardNegativeSampler, random_bags
from tellapart.boost.scripted import boost_scenes
from tellapart.captioners.generate import generate_captions
from tellapart.models.decoding import Decoding
from tellapart.recipe.reading import check_recipe
from tellapart.rewards.retrieval import beside_distractors
from tellapart.scenes import Scenes
from tellapart.training.batches import ShuffleSampler, random_crops
from tellapart.training.build import TrainingSetup
from tellapart.training.optimizer import make_optimizer, make_scheduler
from tellapart.training.runs import upstream
from tellapart.training.step import train_step
from tellapart.training.trainable import TrainableParts
from tellapart.types import Batch
from tellapart.utils.rng import ItemSeeds
from tellapart.utils.versions import VERSIONS

Result = str | list[float]


SEEDS = ItemSeeds(("a", "b", "c", "d"), 0, 1)


def digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


def setup_of(table: dict[str, Any], **changes: Any) -> TrainingSetup:
    """A captioner's weights are by a formula, which no random number generator has a part in."""
    setup = TrainingSetup(check_recipe({**table, **changes}, "test"), upstream)
    if setup.recipe.trains == "scorer":  # under which batch norm would make all pictures alike
        return setup
    with torch.no_grad():
        for number, parameter in enumerate(setup.learner.model.parameters()):
            parameter.copy_(0.3 * torch.sin(1.7 * torch.arange(parameter.numel()) + number).reshape(parameter.shape))
    return setup


def steps_of(setup: TrainingSetup, steps: int, dropout: bool) -> list[float]:
    """Loss, norm of the gradient and rate of each step."""
    data, objective = setup.training_set(), setup.objective()
    trainable = TrainableParts(setup.learner, setup.trained_parts)
    optimizer = make_optimizer(trainable, setup.recipe.training)
    scheduler = make_scheduler(optimizer, setup.recipe.training)
    setup.learner.model.train(dropout)
    logs = [train_step(setup, data, objective, trainable, optimizer, scheduler, step) for step in range(steps)]
    return [each[key] for each in logs for key in ("loss", "gradient_norm", "learning_rate")]


def scenes(table: dict[str, Any]) -> Result:
    drawn = hashlib.blake2b(digest_size=8)
    for settings in ({}, {"domain": "alt"}, {"size": 96}):
        for scene in Scenes(8, **settings):
            drawn.update(scene.array().tobytes() + " ".join(scene.references).encode())
    return drawn.hexdigest()


def boost(table: dict[str, Any]) -> Result:
    return digest(boost_scenes([scene.item() for scene in Scenes(4)], 0.2))


def samplers(table: dict[str, Any]) -> Result:
    plans = (
        ShuffleSampler(40, 7, 3),
        BagSampler(random_bags(40, ((0, 2), (1, 5))), 10, 3),
    )
    return digest([plan(step).rows_B.tolist() for plan in plans for step in range(9)])


def distractors(table: dict[str, Any]) -> Result:
    """The distractors of a batch, and which of its pictures are candidates beside them."""
    near_NK = np.array([[(row + k) % 40 for k in range(1, 8)] for row in range(40)])
    chosen = HardNegativeSampler(ShuffleSampler(40, 10, 3), near_NK, 2, 10)(2)
    items = [Scenes(1)[0].item()] * 10
    assert chosen.distractors_BK is not None
    near_BK = torch.from_numpy(chosen.distractors_BK)
    batch = Batch(items, torch.from_numpy(chosen.rows_B), torch.zeros(10, 1), distractors_BK=near_BK, step=2)
    return digest([chosen.rows_B.tolist(), near_BK.tolist(), beside_distractors(batch, alone=False).tolist()])


def pixels(table: dict[str, Any]) -> Result:
    pixels_BCHW = torch.sin(torch.arange(2 * 3 * 8 * 8).float()).reshape(2, 3, 8, 8)
    crops = random_crops(pixels_BCHW, ItemSeeds(("a", "b"), 0, 5), flip=True)
    return [float(value) for value in crops.mean((2, 3)).flatten()]


def decoding(table: dict[str, Any]) -> Result:
    return digest(written(table, lambda captioner, *how: captioner.generate(*how).texts))


def unknown_words(table: dict[str, Any]) -> Result:
    return digest(
        written(table, lambda captioner, visual, how, seeds: generate_captions(captioner, visual, how, seeds=seeds))
    )


def written(table: dict[str, Any], write: Callable[..., list[str]]) -> list[list[str]]:
    setup = setup_of(table)
    setup.learner.model.eval()
    visual = torch.as_tensor(setup.visual(setup.train_items[:4])[:])
    ways = (
        Decoding(kind="greedy", max_tokens=8),
        Decoding(kind="beam", beams=3, max_tokens=8),
        Decoding(kind="sample", samples=3, temperature=0.7, max_tokens=8),
    )
    return [write(setup.learner, visual, how, SEEDS) for how in ways]


def stop_tokens(table: dict[str, Any]) -> Result:
    setup = setup_of(table)
    setup.captioner.set_stop("left")
    visual = torch.as_tensor(setup.visual(setup.train_items[:4])[:])
    setup.learner.model.eval()
    texts = setup.captioner.generate(visual, Decoding(kind="sample", samples=9, max_tokens=9), SEEDS).texts
    return digest([texts, setup.captioner.tokenize(["a red circle left of a blue square", "a square left"])])


def loop(table: dict[str, Any]) -> Result:
    training = {**table["training"], "schedule": "cosine", "warmup": 1, "weight_decay": 0.1, "max_grad_norm": 0.5}
    return steps_of(setup_of(table, objective={"kind": "mle"}, training=training), 3, dropout=True)


def first_step(objective: dict[str, Any], **changes: Any) -> Callable[[dict[str, Any]], Result]:
    return lambda table: steps_of(setup_of(table, objective=objective, **changes), 1, dropout=False)[:2]


REWARDED = {
    "kind": "reinforce",
    "rewards": [{"kind": "self_retrieval"}, {"kind": "cider", "weight": 0.5}],
    "decoding": {"kind": "sample", "samples": 3, "max_tokens": 6},
    "baseline": "leave_one_out",
    "kl": 0.1,
    "exploration": {},
}
# part -> how its result comes about, the version that gave it, and the result
PARTS: dict[str, tuple[Callable[[dict[str, Any]], Result], int, Result]] = {
    "scenes": (scenes, 1, "c6843469ec5915c6"),
    "boost": (boost, 1, "4b36d9a12b443c15"),
    "samplers": (samplers, 1, "f71c18e2db285466"),
    "distractors": (distractors, 2, "19bdecaa1a56d9c8"),
    "pixels": (pixels, 1, [0.123314, -0.062655, -0.139621, -0.172636, -0.106596, 0.126584]),
    "decoding": (decoding, 1, "da17e00255da169a"),
    "unknown_words": (unknown_words, 1, "3ff1e7669188ca62"),
    "stop_tokens": (stop_tokens, 1, "5bf07dec733bc76d"),
    "loop": (loop, 1, [5.780023, 0.576152, 0.0, 5.851057, 0.670548, 0.001, 5.777861, 0.558318, 0.000904508]),
    "mle": (first_step({"kind": "mle", "label_smoothing": 0.1}), 1, [5.770467, 0.577777]),
    "smile": (first_step({"kind": "smile", "mle_weight": 0.01}), 1, [2.630303, 0.398152]),
    "gem": (first_step({"kind": "gem"}), 1, [0.381617, 0.726563]),
    "sparsemax": (first_step({"kind": "sparsemax"}), 1, [1.250673, 1.351439]),
    "contrastive": (first_step({"kind": "contrastive", "word_dropout": 0.1}, captioner=None), 1, [4.284008, 104.5143]),
    "self_distillation": (
        first_step({"kind": "self_distillation", "prompt": "in this picture"}),
        1,
        [5.537028, 0.793697],
    ),
    "reinforce": (first_step(REWARDED), 2, [0.0118831, 0.0383877]),
}


@pytest.mark.long
@pytest.mark.parametrize("part", VERSIONS)
def test_a_part_that_gives_other_results_has_another_version(part: str, tiny_recipe: dict[str, Any]) -> None:
    make, version, expected = PARTS[part]
    result = make(tiny_recipe)
    assert VERSIONS[part] == version, f"'{part}' has a new version: put its result here, which is {result!r}"
    told = f"'{part}' gives other results, {result!r}: raise its number in VERSIONS, and here with this result"
    assert result == (expected if isinstance(expected, str) else pytest.approx(expected, rel=1e-3, abs=1e-5)), told
