"""The recipes of Flickr8k's truthful pair, a few steps each, on drawn pictures in Flickr8k's own file layout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_flickr8k import write_flickr8k

from tellapart.captioners import generate_captions, load_captioner
from tellapart.captioners.consensus import mean_similarity
from tellapart.data import open_data
from tellapart.objectives.self_distillation import SelfDistillation
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.shipped_recipes import find_recipe
from tellapart.training.build import TrainingSetup
from tellapart.training.objective import objective_of
from tellapart.training.run_folder import Run
from tellapart.training.runs import train
from tellapart.utils.rng import ItemSeeds

TOOLS = Path(__file__).parent.parent.parent / "tools"
SMALL = ["training.batch_size=8", "training.log_every=1", "training.warmup=0", "validation.every=2"]
SCORER = [
    "training.steps=2", "scorer.new.image_size=32", "scorer.new.width=4", "scorer.new.text_width=16",
    "scorer.new.text_layers=1", "scorer.new.text_heads=2", "scorer.new.projection=16", "scorer.new.min_count=1",
]  # fmt: skip
FULL = [
    "training.steps=30", "training.learning_rate=0.01", "captioner.new.width=16", "captioner.new.layers=1",
    "captioner.new.heads=2", "captioner.new.min_count=2", "captioner.new.dropout=0", "training.batch_size=24",
]  # fmt: skip


@pytest.fixture
def flickr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_flickr8k(tmp_path, monkeypatch)


def inline(table: dict[str, Any]) -> str:
    """A table as ``--set`` has it."""
    return "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in table.items()) + "}"


def run_of(name: str, settings: Sequence[str], evaluate: bool = False) -> Run:
    return train(read_recipe(find_recipe(name), [*SMALL, *settings]), evaluate=evaluate)


@pytest.mark.long
def test_start_and_both_arms_are_trained_and_measured(
    flickr: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By three scorers of two thirds each; two seeds."""
    scorer, judge = run_of("flickr8k_scorer", SCORER).folder, run_of("flickr8k_judge", SCORER).folder
    folds = [str(run_of(f"flickr8k_scorer_{fold}", SCORER).folder) for fold in ("12", "13", "23")]
    full = run_of("flickr8k_full", [*FULL, f"captioner.new.vision={scorer}", f"scorer.name={scorer}"])

    monkeypatch.syspath_prepend(TOOLS)
    import flickr8k_truthful as tool

    plain = {"kind": "self_retrieval", "scorers": folds, "combine": "lowest"}
    drawn = inline({"kind": "sample", "samples": 3, "max_tokens": 6})
    settings = [*SMALL, "training.steps=2", "validation.select=loss", f"captioner.name={full.folder}"]
    settings += [f"scorer.name={scorer}", f"evaluation.eval_scorers=['{judge}']", "evaluation.decoding.max_tokens=6"]
    settings += [f"objective.rewards=[{inline(plain)}]"]
    arguments = [argument for setting in settings for argument in ("--set", setting)]
    own = ["objective.decoding.max_tokens=6", "evaluation.decoding.candidates=5"]
    own += [f"objective.rewards=[{inline(plain)}, {{kind='consensus', decoding={drawn}}}, {{kind='likelihood'}}]"]
    arguments += [argument for setting in own for argument in ("--truthful", setting)]
    monkeypatch.setattr("sys.argv", ["flickr8k_truthful.py", "--seeds", "0,1", *arguments])
    capsys.readouterr()
    tool.main()
    printed = capsys.readouterr().out
    rows = {
        cells[1].strip(" `"): cells[2:-1] for cells in (line.split("|") for line in printed.splitlines()) if cells[1:]
    }
    assert set(tool.METRICS) <= rows.keys() and all(len(rows[metric]) == 7 for metric in tool.METRICS)
    assert "[" in rows["facts_precision"][-1] and any(name.startswith("test_") for name in rows)
    alone = np.array([[float(cell.split(" / ")[0]) for cell in rows[seed][:5]] for seed in "01"])
    assert alone.mean(0) == pytest.approx([float(cell) for cell in rows["recall@1.random100"][:5]], abs=0.06)
    settings.append(f"evaluation.eval_scorers=['{folds[1]}']")
    runs = tool.arms(0, settings, own)
    with pytest.raises(SystemExit, match="a scorer that gave the reward"):
        tool.measured([], runs[tool.TRUTHFUL])
    written = tool.read_captions(runs[tool.TRUTHFUL].folder / "captions" / "after.jsonl")
    assert written == chosen_by_hand(runs[tool.TRUTHFUL])


def chosen_by_hand(run: Run) -> dict[str, str]:
    """Of each photo's samples the one with the highest agreement + weight x log p among all 100 test photos."""
    setup = TrainingSetup(run.recipe, lambda name: name)
    decoding, scorer, ids = run.recipe.evaluation.decoding, setup.scorer, [item.id for item in setup.test_items]
    assert decoding.scorer_weight == 0.1 and decoding.confidence == 0.06 and scorer is not None
    captioner = load_captioner(str(run.folder), precision="fp32")
    visual = setup.view_of(captioner).rows(setup.test_items)
    texts = generate_captions(captioner, visual, decoding.drawn, seeds=ItemSeeds(tuple(ids), 0))
    images_ND = np.asarray(setup.store.features(setup.test_items, scorer.encoder))
    logits_MN = torch.from_numpy(scorer.scale * scorer.text_features(texts).numpy() @ images_ND.T)
    chosen = {}
    for place, id_ in enumerate(ids):
        rows = [row for row in range(5 * place, 5 * place + 5) if texts[row]]
        log_prob_K = logits_MN[rows].log_softmax(-1)[:, place].numpy()
        total_K = mean_similarity([texts[row] for row in rows]) + 0.1 * log_prob_K
        chosen[id_] = texts[rows[int(total_K.argmax())]]
    return chosen


@pytest.mark.long
def test_the_start_describes_behind_its_prompt_and_captions_without(flickr: Path) -> None:
    """Self-distillation from such a start: what is learned is one sentence of the words that it is sure of."""
    scorer = run_of("flickr8k_scorer", SCORER).folder
    full = run_of("flickr8k_full", [*FULL, f"captioner.new.vision={scorer}", f"scorer.name={scorer}"])
    distilled = {"kind": "self_distillation", "prompt": "in this picture", "confidence": 0.1, "nearest": 3, "noun": ""}
    recipe = read_recipe(
        find_recipe("flickr8k_truthful"),
        [*SMALL, f"captioner.name={full.folder}", f"scorer.name={scorer}", f"objective={inline(distilled)}"],
    )
    setup = TrainingSetup(recipe, lambda name: name)
    objective = objective_of(setup)
    assert isinstance(objective, SelfDistillation)
    asked, plain = objective.describer.asked, objective.describer.plain
    batch = setup.training_set().batch(0)
    described = asked.generate(batch.visual, objective.cfg.decoding).texts
    short = plain.generate(batch.visual, objective.cfg.decoding).texts
    assert all(" . " in text and len(text.split()) > 18 for text in described), described
    assert all(" . " not in text and not text.startswith("in this picture") for text in short), short
    assert all(" . " not in text and text for text in objective.captions(batch))


def test_the_arms_must_have_one_start(flickr: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TOOLS)
    import flickr8k_truthful as tool

    with pytest.raises(SystemExit, match="the arms differ in start or steps; set"):
        tool.arms(0, [], ["training.steps=3"])


def test_descriptions_of_the_real_layout(flickr: Path) -> None:
    described = open_data(f"flickr8k:{flickr}?split=train&part=1/2&describe=in this picture")
    plain: Any = open_data(f"flickr8k:{flickr}?split=train&part=1/2")
    assert [item.id for item in described] == [f"{item.id}#description" for item in plain]
    text = described[0].references[0]
    assert (
        text.startswith("in this picture a dog with a ") and text.count(". ") == 3 and len(described[0].references) == 4
    )
    assert json.dumps(text).count("runs through") == 1
