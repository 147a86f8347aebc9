"""Neighbours are searched once: a run that goes on finds them in the store, a run with other settings does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tellapart.recipe.reading import check_recipe
from tellapart.training import look_alikes
from tellapart.training.build import TrainingSetup
from tellapart.training.look_alikes import fingerprint


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Says what was done of the work that takes long, in a cache of its own."""
    done: list[str] = []

    def noted(name: str) -> None:
        real = getattr(look_alikes, name)
        monkeypatch.setattr(look_alikes, name, lambda *a, **b: (done.append(name), real(*a, **b))[1])

    monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path))
    noted("nearest_neighbours")
    noted("caption_features")
    return done


def rows_of(table: dict[str, Any], bags: dict[str, Any]) -> list[list[int]]:
    """The first batches of a new start."""
    table["training"] |= {"batches": "bags", "batch_size": 20}
    batches = TrainingSetup(check_recipe({**table, "bags": bags}, "test"), lambda name: name).training_set()
    return [batches.batch(step).rows_B.tolist() for step in range(4)]


@pytest.mark.long
def test_the_second_start_does_not_search(tiny_recipe: dict[str, Any], work: list[str]) -> None:
    first = rows_of(tiny_recipe, {"size": 3})
    assert work == ["nearest_neighbours"]
    assert rows_of(tiny_recipe, {"size": 3}) == first and work == ["nearest_neighbours"]
    rows_of(tiny_recipe, {"size": 4})  # larger bags of the same neighbours
    assert work == ["nearest_neighbours"]
    assert rows_of(tiny_recipe, {"size": 3, "max_cosine": 0.99}) != first
    rows_of(tiny_recipe, {"size": 3, "neighbours": 20})
    rows_of({**tiny_recipe, "data": {**tiny_recipe["data"], "train": "scenes:plain?n=50&split=train"}}, {"size": 3})
    assert work == ["nearest_neighbours"] * 4


def test_nor_does_it_encode_captions(tiny_recipe: dict[str, Any], work: list[str]) -> None:
    first = rows_of(tiny_recipe, {"size": 3, "captions": "references"})
    assert work == ["caption_features", "nearest_neighbours"]
    assert rows_of(tiny_recipe, {"size": 3, "captions": "references"}) == first and len(work) == 2
    assert rows_of(tiny_recipe, {"size": 3}) != first and work[2:] == ["nearest_neighbours"]


def test_the_fingerprint_is_of_all_that_counts() -> None:
    features_ND = np.arange(9000, dtype=np.float32).reshape(4500, 2)
    last = features_ND.copy()
    last[-1, -1] += 1
    captions = [["a"], ["b"]]
    some = [
        fingerprint(features_ND, None, "s"),
        fingerprint(last, None, "s"),
        fingerprint(features_ND.reshape(2250, 4), None, "s"),
        fingerprint(features_ND, captions, "s"),
        fingerprint(features_ND, captions, "t"),
        fingerprint(features_ND, [["a", "b"], []], "s"),
    ]
    assert len(set(some)) == len(some) and some[0] == fingerprint(features_ND.copy(), None, "t")
