"""Captioner × objective: trains, generates, saves, loads, same captions. Prints docs/research/captioners.md.

pytest -m "long or slow" -s tests/captioners/test_table.py

Every captioner learns by words (MLE) and by samples (self-retrieval), and every objective teaches five captioners; the
further pairs have the mark ``slow``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from families import FAMILIES, WORDS
from PIL import Image
from test_official import MAPPERS, published, save_clip, save_language

from tellapart.captioners import generate_captions, load_captioner
from tellapart.models.decoding import Decoding
from tellapart.recipe.reading import check_recipe
from tellapart.recipe.schema import NewRecurrent
from tellapart.training.build import TrainingSetup
from tellapart.training.new_models import build_recurrent
from tellapart.training.objective import objective_of
from tellapart.training.optimizer import make_optimizer, make_scheduler
from tellapart.training.runs import upstream
from tellapart.training.step import train_step
from tellapart.training.trainable import TrainableParts

STEPS = 20
LONGER = {  # 20 are too few to show above the noise of their few samples
    ("blip2_t5", "self-retrieval"): 80,
    ("LSTM", "self-retrieval"): 60,
    ("LSTM with attention", "self-retrieval"): 60,
    ("qwen2_vl", "self-retrieval"): 60,
    ("idefics3", "self-retrieval"): 60,
    ("smolvlm", "self-retrieval"): 60,
    ("paligemma", "CIDEr"): 60,
}
WRITTEN = Decoding(kind="sample", samples=4, max_tokens=6)
OBJECTIVES: dict[str, dict[str, Any]] = {
    "MLE": {"kind": "mle"},
    "SMILE": {"kind": "smile", "mle_weight": 0.1},
    "self-retrieval": {"kind": "reinforce", "rewards": [{"kind": "self_retrieval"}]},
    "CIDEr": {"kind": "reinforce", "rewards": [{"kind": "cider"}]},
}


def clipcap(mapper: str) -> Callable[[Path], str]:
    def made(folder: Path) -> str:
        vision, language = save_clip(folder / "clip"), save_language(folder / "gpt2")
        published(MAPPERS[mapper](), language, folder / "weights.pt")
        return f"{folder}/weights.pt?vision={vision}&language_model={language}"

    return made


def blip(folder: Path) -> str:
    from tiny_blip import save_blip

    return f"{save_blip(folder, list(dict.fromkeys(WORDS.split())))}?prompt=a picture of"


def recurrent(attention: bool) -> Callable[[Path], str]:
    def made(folder: Path) -> str:
        from tellapart.captioners.vision_encoders import load_vision

        torch.manual_seed(0)
        vision, processor = load_vision(str(save_clip(folder / "clip")))
        new = NewRecurrent(kind="recurrent", vision="x", attention=attention, width=16, min_count=1)
        build_recurrent(new, [WORDS], "tiny", vision, processor).save(folder / "made")
        return str(folder / "made")

    return made


CAPTIONERS: dict[str, Callable[[Path], Any]] = {
    "ClipCap, MLP": clipcap("mlp"),
    "ClipCap, transformer": clipcap("transformer"),
    "BLIP": blip,
    "LSTM": recurrent(attention=False),
    "LSTM with attention": recurrent(attention=True),
    **FAMILIES,
}
FURTHER = {(captioner, objective) for captioner in FAMILIES for objective in ("SMILE", "CIDEr")}
RESULTS: dict[tuple[str, str], str] = {}


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    yield
    lines = [f"| captioner | {' | '.join(OBJECTIVES)} |", "|---" * (1 + len(OBJECTIVES)) + "|"]
    for captioner in CAPTIONERS:
        cells = [RESULTS.get((captioner, objective), "not run") for objective in OBJECTIVES]
        lines.append(f"| {captioner} | {' | '.join(cells)} |")
    print("\n" + "\n".join(lines))


def pairs() -> list[object]:
    """All pairs; long ones, or slow."""
    return [
        pytest.param(*pair, marks=pytest.mark.slow if pair in FURTHER else pytest.mark.long)
        for pair in itertools.product(CAPTIONERS, OBJECTIVES)
    ]


@pytest.mark.parametrize(("captioner", "objective"), pairs())
def test_it_trains_generates_saves_and_loads(
    captioner: str, objective: str, tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    RESULTS[captioner, objective] = "failed"
    name, pictures = str(CAPTIONERS[captioner](tmp_path)), write_data(tmp_path)
    setup = TrainingSetup(recipe_of(tiny_recipe, name, OBJECTIVES[objective], pictures), upstream)
    data, made = setup.training_set(), objective_of(setup)
    batch = data.batch(0)
    data.batch = lambda step: replace(batch, step=step)  # type: ignore[method-assign]
    trainable = TrainableParts(setup.learner, setup.trained_parts)
    optimizer = make_optimizer(trainable, setup.recipe.training)
    scheduler = make_scheduler(optimizer, setup.recipe.training)
    before = measure(setup, made, batch)
    steps = LONGER.get((captioner, objective), STEPS)
    for step in range(steps):
        setup.learner.model.train()
        train_step(setup, data, made, trainable, optimizer, scheduler, step)
    after = measure(setup, made, batch)
    assert after < before if objective in ("MLE", "SMILE") else after > before
    setup.learner.save(tmp_path / "saved")
    again = load_captioner(str(tmp_path / "saved"))
    for decoding in (Decoding(max_tokens=6), Decoding(kind="beam", beams=3, max_tokens=6)):
        told = [generate_captions(one, batch.visual, decoding) for one in (setup.learner, again)]
        assert told[0] == told[1] and len(told[0]) == len(batch.items)
    RESULTS[captioner, objective] = f"{before:.2f} → {after:.2f}" + ("" if steps == STEPS else f" ({steps} steps)")


def recipe_of(table: dict[str, Any], name: str, objective: dict[str, Any], pictures: str) -> Any:
    if objective["kind"] == "reinforce":
        objective = {**objective, "decoding": WRITTEN.model_dump(), "baseline": "leave_one_out", "whiten": True}
    data = {"train": pictures, "validation": pictures}
    training = {**table["training"], "steps": STEPS, "batch_size": 8, "learning_rate": 1e-2}
    changes = {"data": data, "captioner": {"name": name}, "objective": objective, "training": training}
    return check_recipe({**table, **changes}, "test")


TEXTS = ("a red dog on the grass", "blue house near the cat", "the green cat sits", "a dog near a house")


def write_data(folder: Path) -> str:
    """Eight pictures, with references in words that all the tiny captioners know."""
    lines = []
    for number in range(8):
        noise = torch.randint(0, 256, (40, 40, 3), generator=torch.Generator().manual_seed(number))
        Image.fromarray(noise.to(torch.uint8).numpy()).save(folder / f"{number}.png")
        lines.append(json.dumps({"image": f"{number}.png", "captions": [TEXTS[number % 4]]}))
    (folder / "data.jsonl").write_text("\n".join(lines))
    return f"jsonl:{folder}/data.jsonl"


def measure(setup: Any, made: Any, batch: Any) -> float:
    """The loss of the fixed batch, or the mean reward of captions drawn at a fixed seed; dropout off."""
    learner = setup.learner
    learner.model.eval()
    with torch.no_grad():
        if not hasattr(made, "terms"):
            return float(made(learner, batch).value)
        torch.manual_seed(7)
        told = learner.generate(batch.visual, WRITTEN.model_copy(update={"samples": 32}))
        return float(made.terms[0].reward(told, batch).float().nanmean())
