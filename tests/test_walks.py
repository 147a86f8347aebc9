"""How many files one reads to follow a training step, a metric and a caption, against the table in docs/design.md.

``python tests/test_walks.py step`` (or ``bleu``, ``caption``, ``clip``) prints the files of the package in which a
function runs, each with its functions. Imports aside: a module that is loaded on the way counts where one of its
functions is called.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = str(ROOT / "src" / "tellapart") + "/"


class Walk:
    """Records the functions of the package that run inside ``with``, by file; without those that an import runs."""

    def __init__(self) -> None:
        self.functions: dict[str, set[str]] = defaultdict(set)
        self.here = threading.local()  # ``importing``: how many imports this thread is in

    def __enter__(self) -> Walk:
        threading.setprofile(self.notice)  # of threads that start from now on
        sys.setprofile(self.notice)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def notice(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        importing = getattr(self.here, "importing", 0)
        if code.co_filename.startswith("<frozen importlib"):
            self.here.importing = importing + {"call": 1, "return": -1}[event]
        elif event == "call" and not importing and code.co_filename.startswith(PACKAGE):
            self.functions[code.co_filename.removeprefix(PACKAGE)].add(code.co_qualname)


def step(folder: Path) -> Walk:
    """One self-retrieval step, from `train_step` on: a ClipCap on features, DiscriTune's objective."""
    from tellapart.recipe.reading import check_recipe
    from tellapart.training.build import TrainingSetup
    from tellapart.training.runs import upstream
    from tellapart.training.step import TrainableParts, make_optimizer, make_scheduler, train_step

    table = {
        "name": "walk",
        "data": {"train": "scenes:plain?n=8", "validation": "scenes:plain?n=8&split=validation"},
        "captioner": {"new": {"vision": "scenes"}},
        "scorer": {"name": "scenes"},
        "objective": {"kind": "reinforce"},
        "training": {"steps": 2, "batch_size": 4, "learning_rate": 1e-5},
    }
    recipe = check_recipe(table, "walk")
    setup = TrainingSetup(recipe, upstream)
    data, objective = setup.training_set(), setup.objective()
    trainable = TrainableParts(setup.learner, setup.trained_parts)
    optimizer = make_optimizer(trainable, recipe.training)
    scheduler = make_scheduler(optimizer, recipe.training)
    train_step(setup, data, objective, trainable, optimizer, scheduler, 0)  # what is done once is done
    with Walk() as walk:
        train_step(setup, data, objective, trainable, optimizer, scheduler, 1)
    return walk


def bleu(folder: Path) -> Walk:
    """BLEU of two captions through `evaluate`."""
    from tellapart.evaluation.evaluate import evaluate

    captions = {"1": "a red circle", "2": "a blue square"}
    references = {"1": ["a red circle"], "2": ["one blue square"]}
    with Walk() as walk:
        evaluate({"mine": captions}, references=references, metrics=["bleu-4"])
    return walk


def caption(folder: Path) -> Walk:
    """``tellapart caption`` of a folder, by a ClipCap behind the vision encoder of ``scenes``."""
    from tellapart.recipe.schema import NewCaptioner
    from tellapart.scorers import load_scorer
    from tellapart.training.build import build_captioner

    scorer = load_scorer("scenes", "cpu")
    made = build_captioner(
        NewCaptioner(vision="scenes"), ["a red circle"], scorer.model.vision_model, scorer.processor, "walk"
    )
    return caption_by(made, folder)


def clip(folder: Path) -> Walk:
    """``tellapart caption`` of a folder, by a ClipCap as its authors published it: behind CLIP, with random weights."""
    from transformers import CLIPImageProcessorPil, CLIPVisionConfig, GPT2Config

    from tellapart.captioners.clipcap import ClipCap, ClipCapConfig, ClipCapModel
    from tellapart.models.tokens import word_tokenizer

    words = word_tokenizer(["a red circle"])
    ids = {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id}
    text = GPT2Config(vocab_size=len(words), n_positions=64, n_embd=8, n_layer=1, n_head=2, **ids)
    vision = CLIPVisionConfig(
        hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=16
    )
    model: Any = ClipCapModel(ClipCapConfig(vision_config=vision, text_config=text)).eval()
    pictures = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return caption_by(ClipCap(model, words, pictures, "walk"), folder)


def caption_by(captioner: Any, folder: Path) -> Walk:
    """``tellapart caption`` of a folder with two pictures."""
    from PIL import Image

    from tellapart.cli import main

    captioner.save(folder / "model")
    (folder / "pictures").mkdir()
    for name, color in (("red", (200, 0, 0)), ("blue", (0, 0, 200))):
        Image.new("RGB", (64, 64), color).save(folder / "pictures" / f"{name}.png")
    sys.argv = ["tellapart", "caption", str(folder / "model"), str(folder / "pictures")]
    sys.argv += ["-o", str(folder / "captions.jsonl")]
    with Walk() as walk:
        try:
            main()
        except SystemExit as left:
            assert not left.code, left.code
    return walk


WALKS: dict[str, Callable[[Path], Walk]] = {"step": step, "bleu": bleu, "caption": caption, "clip": clip}
ROWS = {
    "step": "one self-retrieval step, from `train_step` on",
    "bleu": "one BLEU through `evaluate`",
    "caption": "`tellapart caption` of a folder, what it imports aside",
    "clip": "the same by a ClipCap behind CLIP, as published",
}


@pytest.mark.long
@pytest.mark.parametrize("name", WALKS)
def test_the_design_page_says_how_many_files_a_walk_opens(name: str) -> None:
    done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    (stated,) = re.findall(rf"^\| {re.escape(ROWS[name])} \| (\d+) \|", page, re.M)
    files = done.stdout.splitlines()
    assert len(files) == int(stated), done.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for file, functions in sorted(WALKS[sys.argv[1]](Path(place)).functions.items()):
            print(f"{file}: {', '.join(sorted(functions))}")
