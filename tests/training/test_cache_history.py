"""The same recipe and seed give the same weights, whatever the feature store held before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tellapart.captioners import load_captioner
from tellapart.data import open_data
from tellapart.features import FeatureStore
from tellapart.recipe.reading import check_recipe
from tellapart.scorers import load_scorer
from tellapart.training.runs import train


@pytest.mark.long
@pytest.mark.parametrize("objective", [{}, {"kind": "mle"}])
def test_a_run_does_not_depend_on_the_cache(
    objective: dict[str, Any],
    tiny_recipe: dict[str, Any],
    tiny_captioner: Path,
    tiny_scorer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = check_recipe(tiny_recipe | ({"objective": objective} if objective else {}), "test")
    pictures = list(open_data(tiny_recipe["data"]["train"]))
    encoders = [load_scorer(str(tiny_scorer)).encoder, load_captioner(str(tiny_captioner)).encoder]
    before: dict[str, list[slice]] = {
        "empty": [],
        "some": [slice(3, 8)],
        "one by one": [slice(n, n + 1) for n in reversed(range(9))],
    }
    weights = []
    for name, history in before.items():
        monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path / name / "cache"))
        for encoder in encoders:
            for chosen in history:
                FeatureStore().features(pictures[chosen], encoder)
        run = train(recipe, tmp_path / name / "run", evaluate=False)
        weights.append(load_file(run.checkpoints / "step-0000006" / "weights.safetensors"))
    for other in weights[1:]:
        assert all(torch.equal(tensor, other[key]) for key, tensor in weights[0].items())
