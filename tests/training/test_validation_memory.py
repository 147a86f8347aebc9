"""Validation holds the patches of a few pictures at once, however many there are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_blip import save_blip

from tellapart.features.stored_rows import StoredRows
from tellapart.recipe.reading import check_recipe
from tellapart.scenes import Scenes
from tellapart.training import validation
from tellapart.training.build import TrainingSetup
from tellapart.training.runs import upstream

PICTURES, BLOCK = 50, 10


@pytest.mark.parametrize("train", [["vision", "language_model"], ["language_model"]])
def test_patches_of_a_block_are_held_at_once(
    tmp_path: Path, tiny_scorer: Path, train: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most bytes of encoded patches alive at a time are a block's. And the numbers are those of one whole block."""
    texts = [text for scene in Scenes(60) for text in scene.references]
    words = sorted({word for text in texts for word in re.findall(r"\w+", text.lower())})
    setup = TrainingSetup(
        check_recipe(recipe(save_blip(tmp_path, words, positions=64), tiny_scorer, train), "test"), upstream
    )
    captioner, alive = setup.captioner, Alive()
    encode = captioner.encode
    asked: list[int] = []  # rows read at a time of what a frozen encoder made
    read = StoredRows.__getitem__
    monkeypatch.setattr(StoredRows, "__getitem__", lambda self, rows: counted(asked, read(self, rows), self))
    monkeypatch.setattr(type(captioner), "encode", lambda self, pixels: alive.counted(encode(pixels)))
    monkeypatch.setattr(validation, "MAX_PICTURES", BLOCK)
    values = validation.Validator(setup).run()
    monkeypatch.setattr(validation, "MAX_PICTURES", PICTURES)
    held = alive.most
    assert 0 < max(asked) <= BLOCK
    whole = validation.Validator(setup).run()
    assert values == pytest.approx(whole, rel=1e-5)
    if "vision" in train:
        with torch.no_grad():
            (one,) = encode(captioner.pixels([setup.validation_items[0].picture.image()]))
        assert 0 < held <= 2 * BLOCK * one.numel() * 4  # a block, and its copy in float32
        assert alive.most >= PICTURES * one.numel() * 4


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="what a process holds is read from /proc")
@pytest.mark.parametrize("train", ["vision,language_model", "language_model"])
def test_validation_of_a_blip_takes_less_than_half_a_gigabyte(tiny_scorer: Path, train: str) -> None:
    """With patches, text layers (six of twelve) and beams of the real size: the keys and values of 40 pictures would be
    0.9 GB, and a frozen encoder that read them all at once would take 1 GB."""
    command = [sys.executable, str(Path(__file__).with_name("validation_run.py")), "40", str(tiny_scorer), train]
    environment = {name: value for name, value in os.environ.items() if name != "DNNL_MAX_CPU_ISA"}  # no four channels
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 5e8  # 245 and 75 MB


def counted(asked: list[int], found: np.ndarray, rows: StoredRows) -> np.ndarray:
    """Notes how many rows of patches or pixels were read at once."""
    if rows.ndim > 2:
        asked.append(len(found))
    return found


class Alive:
    """Counts the bytes of tensors that are alive."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def counted(self, made: torch.Tensor) -> torch.Tensor:
        size = made.numel() * made.element_size()
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(made, self.freed, size)
        return made

    def freed(self, size: int) -> None:
        self.now -= size


def recipe(blip: Path, scorer: Path, train: list[str]) -> dict[str, Any]:
    return {
        "name": "memory",
        "data": {"train": "scenes:plain?n=4&split=train", "validation": f"scenes:plain?n={PICTURES}&split=validation"},
        "captioner": {"name": str(blip), "train": train},
        "scorer": {"name": str(scorer)},
        "objective": {"kind": "mle"},
        "training": {"steps": 1, "batch_size": 4, "learning_rate": 1e-4},
        "validation": {"decoding": {"kind": "greedy", "max_tokens": 5}},
    }
