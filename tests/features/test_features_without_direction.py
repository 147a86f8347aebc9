"""A scorer whose projection is zero or overflows matches every picture alike: whoever reads its features refuses them.

As ties are hits, recall would be 100 %, an accuracy reward 1, and every picture the neighbour of every other.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tellapart.bags.mine import mine_bags
from tellapart.data import open_data
from tellapart.errors import TellapartError, UsageError
from tellapart.features.nearest import Vectors, nearest_among
from tellapart.features.store import FeatureStore
from tellapart.inference.best_of import BestOf
from tellapart.rewards import SelfRetrieval, self_retrieval
from tellapart.scorers import load_scorer
from tellapart.types import Batch, Rollout

FACTORS = [0.0, 1e30, float("inf")]
TEXTS = ["a red circle", "a blue square"]
REFUSED = "contain rows of zeros, NaN or infinity,"


def broken(folder: Path, head: str, factor: float) -> Any:
    scorer = deepcopy(load_scorer(str(folder)))
    getattr(scorer.model, head).weight.data.mul_(factor)
    return scorer


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, colour in enumerate(("red", "blue", "green")):
        Image.new("RGB", (40, 30), colour).save(folder / f"{number}.png")
    return folder


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("score", ["log_prob", "accuracy", "cosine"])
def test_a_reward_refuses_a_scorer_without_directions(score: Any, factor: float, tiny_scorer: Path) -> None:
    pictures = [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue")]
    for head in ("text_projection", "visual_projection"):
        with pytest.raises(TellapartError, match=REFUSED):
            self_retrieval(TEXTS, pictures, broken(tiny_scorer, head, factor), score=score)
    scorer = broken(tiny_scorer, "text_projection", factor)
    rollout = Rollout(torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.bool), TEXTS, 1)
    with pytest.raises(TellapartError, match=REFUSED):
        SelfRetrieval(scorer, np.eye(2, 16, dtype=np.float32), score=score)(
            rollout, Batch([], torch.arange(2), torch.zeros(2, 1))
        )


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_a_reward_refuses_features_of_pictures_without_a_direction(value: float, tiny_scorer: Path) -> None:
    image_BD = torch.eye(2, 16)
    image_BD[1] = value
    with pytest.raises(ValueError, match="Some pictures have features that are zero, NaN or infinite;"):
        self_retrieval(TEXTS, image_BD, load_scorer(str(tiny_scorer)), score="accuracy")


@pytest.mark.parametrize("factor", FACTORS)
def test_best_of_refuses_a_scorer_without_directions(factor: float, tiny_scorer: Path, photos: Path) -> None:
    dataset, store = open_data(str(photos)), FeatureStore()
    with pytest.raises(TellapartError, match=REFUSED):
        BestOf.among(dataset, broken(tiny_scorer, "visual_projection", factor), store, progress=False)
    scorer = broken(tiny_scorer, "text_projection", factor)
    chooser = BestOf.among(dataset, scorer, store, distractors=2, progress=False)
    with pytest.raises(TellapartError, match=REFUSED):
        chooser.rank(dataset, [TEXTS] * 3)
    with pytest.raises(TellapartError, match=REFUSED):
        chooser.consensus(dataset, [TEXTS] * 3, 1.0)


@pytest.mark.parametrize("factor", FACTORS)
def test_bags_are_not_mined_by_a_scorer_without_directions(
    factor: float, tiny_scorer: Path, photos: Path, tmp_path: Path, cli: Any
) -> None:
    folder = tmp_path / "broken"
    broken(tiny_scorer, "visual_projection", factor).save(folder)
    done = cli("bags", "mine", photos, "--scorer", folder, "--size", 2, "-o", tmp_path / "bags.jsonl")
    assert done.status == 1 and REFUSED in done.err, done.err
    assert not (tmp_path / "bags.jsonl").exists()


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_neighbours_and_bags_refuse_rows_without_a_direction(value: float) -> None:
    features_ND = np.eye(5)
    features_ND[3] = value
    said = r"1 of 5 rows of features are zero, NaN or infinite \(first: row 3\)"
    with pytest.raises(UsageError, match=said):
        mine_bags(features_ND, 2)
    with pytest.raises(UsageError, match=said):
        nearest_among(Vectors.of(np.eye(5)), Vectors.of(features_ND), 2)
