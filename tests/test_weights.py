"""The recipe that made the shipped weights makes them again, as good as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tellapart.captioners import generate_captions, load_captioner
from tellapart.evaluation.evaluate import evaluate
from tellapart.features.store import FeatureStore
from tellapart.models.decoding import Decoding
from tellapart.recipe.reading import read_recipe
from tellapart.scenes import Scenes
from tellapart.scorers import load_scorer
from tellapart.training.runs import train, upstream
from tellapart.types import Item

RECIPES = Path(__file__).parent.parent / "recipes"


PROMPT = "in this picture"


def captions(captioner_name: str, items: list[Item]) -> dict[str, str]:
    """Greedy captions; a prompt is put back in front, where it belongs to what the caption says."""
    captioner = load_captioner(captioner_name, "cpu", "fp32")
    visual = FeatureStore().features(items, captioner.encoder)
    texts = generate_captions(captioner, visual, Decoding(max_tokens=40))
    before = f"{PROMPT} " if "?prompt=" in captioner_name else ""
    return {item.id: before + text for item, text in zip(items, texts, strict=True)}


def quality(captioner_name: str, scorer_name: str) -> dict[str, float]:
    """How well a scorer hears full descriptions, and what a captioner's captions are like."""
    items = [scene.item() for scene in Scenes(400, split="test", seed=9)]
    scorer = load_scorer(scorer_name)
    systems = {
        "captions": captions(captioner_name, items),
        "asked": captions(f"{captioner_name}?prompt={PROMPT}", items),
        "full": {item.id: item.truth.description for item in items},
    }
    found = evaluate(systems, items=items, scorer=scorer, resamples=10).systems
    return {
        "heard": found["full"]["recall@1.random100"].value,
        "precision": found["captions"]["attribute_precision"].value,
        "length": found["captions"]["length"].value,
        "asked": found["asked"]["attribute_precision"].value,
    }


@pytest.mark.slow
def test_the_recipe_remakes_the_shipped_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """About two hours on two cores."""
    monkeypatch.chdir(tmp_path)
    recipe = read_recipe(RECIPES / "scenes_mle.toml")
    run = train(recipe, tmp_path / "captioner")
    assert recipe.scorer is not None and recipe.scorer.name is not None
    remade, shipped = quality(str(run.folder), upstream(recipe.scorer.name)), quality("scenes", "scenes")
    assert remade["heard"] == pytest.approx(shipped["heard"], abs=5)
    assert remade["precision"] == pytest.approx(shipped["precision"], abs=5)
    assert remade["length"] == pytest.approx(shipped["length"], rel=0.15)
    assert remade["asked"] == pytest.approx(shipped["asked"], abs=4)
