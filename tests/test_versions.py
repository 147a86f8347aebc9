"""A result of each part of the code that every run goes through, beside the part's version.

If one of these fails, a run that was interrupted before the change would resume as another run. Raise the part's number
in ``src/tellapart/utils/versions.py`` and put the new result here. The losses have hand-computed numbers of their own
in ``tests/objectives``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tellapart.bags.sampler import BagSampler, ShuffleSampler, random_bags
from tellapart.models.decoding import Decoding
from tellapart.objectives import OBJECTIVES
from tellapart.recipe.reading import check_recipe
from tellapart.scenes import Scenes
from tellapart.training.build import TrainingSetup
from tellapart.training.objective import objective_of
from tellapart.training.optimizer import make_optimizer, make_scheduler
from tellapart.training.random_crops import random_crops
from tellapart.training.runs import upstream
from tellapart.training.step import train_step
from tellapart.training.trainable import TrainableParts
from tellapart.utils.rng import ItemSeeds
from tellapart.utils.versions import VERSIONS

Result = str | list[float]


SEEDS = ItemSeeds(("a", "b", "c", "d"), 0, 1)


def digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


def setup_of(table: dict[str, Any], **changes: Any) -> TrainingSetup:
    """A captioner's weights are by a formula, which no random number generator has a part in."""
    setup = TrainingSetup(check_recipe({**table, **changes}, "test"), upstream)
    with torch.no_grad():
        for number, parameter in enumerate(setup.learner.model.parameters()):
            parameter.copy_(0.3 * torch.sin(1.7 * torch.arange(parameter.numel()) + number).reshape(parameter.shape))
    return setup


def steps_of(setup: TrainingSetup, steps: int, dropout: bool) -> list[float]:
    """Loss, norm of the gradient and rate of each step."""
    data, objective = setup.training_set(), objective_of(setup)
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


def samplers(table: dict[str, Any]) -> Result:
    plans = (
        ShuffleSampler(40, 7, 3),
        BagSampler(random_bags(40, ((0, 2), (1, 5))), 10, 3),
    )
    return digest([plan(step).rows_B.tolist() for plan in plans for step in range(9)])


def pixels(table: dict[str, Any]) -> Result:
    pixels_BCHW = torch.sin(torch.arange(2 * 3 * 8 * 8).float()).reshape(2, 3, 8, 8)
    crops = random_crops(pixels_BCHW, ItemSeeds(("a", "b"), 0, 5), flip=True)
    return [float(value) for value in crops.mean((2, 3)).flatten()]


def decoding(table: dict[str, Any]) -> Result:
    setup = setup_of(table)
    setup.learner.model.eval()
    visual = torch.as_tensor(setup.visual(setup.train_items[:4])[:])
    ways = (
        Decoding(kind="greedy", max_tokens=8),
        Decoding(kind="beam", beams=3, max_tokens=8),
        Decoding(kind="sample", samples=3, temperature=0.7, max_tokens=8),
    )
    return digest([setup.captioner.generate(visual, how, SEEDS).texts for how in ways])


def loop(table: dict[str, Any]) -> Result:
    training = {**table["training"], "schedule": "cosine", "warmup": 1, "weight_decay": 0.1, "max_grad_norm": 0.5}
    return steps_of(setup_of(table, objective={"kind": "mle"}, training=training), 3, dropout=True)


REWARDED = {
    "kind": "reinforce",
    "rewards": [{"kind": "self_retrieval"}, {"kind": "cider", "weight": 0.5}],
    "decoding": {"kind": "sample", "samples": 3, "max_tokens": 6},
    "baseline": "leave_one_out",
    "kl": 0.1,
    "exploration": {},
}


def reinforce(table: dict[str, Any]) -> Result:
    return steps_of(setup_of(table, objective=REWARDED), 1, dropout=False)[:2]


# part -> how its result comes about, the version that gave it, and the result
PARTS: dict[str, tuple[Callable[[dict[str, Any]], Result], int, Result]] = {
    "scenes": (scenes, 1, "c6843469ec5915c6"),
    "samplers": (samplers, 1, "f71c18e2db285466"),
    "pixels": (pixels, 1, [0.123314, -0.062655, -0.139621, -0.172636, -0.106596, 0.126584]),
    "decoding": (decoding, 1, "da17e00255da169a"),
    "loop": (loop, 1, [5.780023, 0.576152, 0.0, 5.851057, 0.670548, 0.001, 5.777861, 0.558318, 0.000904508]),
    "reinforce": (reinforce, 2, [0.0118831, 0.0383877]),
}


def test_every_objective_has_a_number() -> None:
    """Without one, a run would be reused although its objective changed."""
    assert OBJECTIVES.builtin().keys() <= VERSIONS.keys()


@pytest.mark.long
@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_gives_other_results_has_another_version(part: str, tiny_recipe: dict[str, Any]) -> None:
    make, version, expected = PARTS[part]
    result = make(tiny_recipe)
    assert VERSIONS[part] == version, f"'{part}' has a new version: put its result here, which is {result!r}"
    told = f"'{part}' gives other results, {result!r}: raise its number in VERSIONS, and here with this result"
    assert result == (expected if isinstance(expected, str) else pytest.approx(expected, rel=1e-3, abs=1e-5)), told
