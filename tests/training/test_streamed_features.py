"""``captioner.features = "off"``: the same run as with the store, and nothing but a byte a picture on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tellapart.features.store import FeatureStore
from tellapart.recipe.reading import check_recipe
from tellapart.recipe.schema import Recipe
from tellapart.training.fingerprint import content_of
from tellapart.training.runs import train


def recipes(table: dict[str, Any], **captioner: Any) -> tuple[Recipe, Recipe]:
    """With the store, and without."""
    table = {**table, "captioner": {**table["captioner"], **captioner}}
    off = {**table, "captioner": {**table["captioner"], "features": "off"}}
    return check_recipe(table, "test"), check_recipe(off, "test")


@pytest.mark.long
@pytest.mark.parametrize("learns", [None, ["vision", "mapper", "language_model"]])
def test_a_run_without_kept_features_is_the_same_run(
    tiny_recipe: dict[str, Any], learns: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen features, and the pixels of a vision encoder that learns."""
    tiny_recipe["training"] |= {"steps": 3, "checkpoint_every": 3}
    kept, off = recipes(tiny_recipe, **({"train": learns} if learns else {}))
    assert content_of(kept).fingerprint == content_of(off).fingerprint, "where features lie decides no number"
    for name, recipe in (("kept", kept), ("off", off)):
        monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path / f"cache-{name}"))
        train(recipe, tmp_path / name)
    weights = [load_file(tmp_path / name / "model" / "model.safetensors") for name in ("kept", "off")]
    assert weights[0].keys() == weights[1].keys()
    for key, value in weights[0].items():
        torch.testing.assert_close(weights[1][key], value, rtol=1e-4, atol=1e-5)
    uses = {use.label: use.bytes for use in FeatureStore(tmp_path / "cache-off").usage()}
    kept_labels = {use.label for use in FeatureStore(tmp_path / "cache-kept").usage()}
    assert uses.pop("decodes") == 120, "a byte for each of the pictures"
    assert len(uses) == 1 and uses.keys() < kept_labels, "beside it the features of the scorer alone"


def test_a_captioner_behind_files_alone_needs_them(tiny_recipe: dict[str, Any]) -> None:
    from tellapart.errors import UsageError

    tiny_recipe["captioner"] = {"new": {"kind": "recurrent"}, "features": "off"}
    with pytest.raises(UsageError, match=r"kind = 'recurrent' requires either new.vision = 'MODEL' or"):
        check_recipe(tiny_recipe, "test")
