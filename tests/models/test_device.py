"""Every verb takes the best device that torch finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Cli

from tellapart.models.devices import best_device

SECOND = torch.device("cpu", 1)  # torch allocates there, and no model is moved there by chance


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """A machine with an accelerator, as torch tells it; where models are moved to."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: SECOND)
    seen: list[torch.device] = []
    plain = torch.nn.Module.to

    def to(self: torch.nn.Module, *args: Any, **options: Any) -> torch.nn.Module:
        seen.extend(torch.device(arg) for arg in args if isinstance(arg, str | torch.device))
        return plain(self, *args, **options)

    monkeypatch.setattr(torch.nn.Module, "to", to)
    return seen


def test_the_accelerator_comes_first(moves: list[torch.device], monkeypatch: pytest.MonkeyPatch) -> None:
    assert best_device() == SECOND
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert best_device() == torch.device("cpu")
    monkeypatch.delenv("ACCELERATE_USE_CPU")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert best_device() == torch.device("cpu")


def test_caption_eval_and_bags_take_it(
    cli: Cli, moves: list[torch.device], tiny_captioner: Path, tiny_scorer: Path, tmp_path: Path
) -> None:
    data, captions = "scenes:plain?n=12&split=test", tmp_path / "captions.jsonl"
    scored = ("--scorer", tiny_scorer)
    done = cli("caption", tiny_captioner, data, "-o", captions, "--max-tokens", 4, "--best-of", 2, *scored)
    assert done.status == 0, done.err
    assert moves == [SECOND] * 2
    done = cli("eval", "--captions", captions, "--data", data, *scored, "--metrics", "clipscore", "--allow-missing")
    assert done.status == 0, done.err
    assert moves == [SECOND] * 3
    done = cli("bags", "mine", data, *scored, "--size", "3", "-o", tmp_path / "bags.jsonl")
    assert done.status == 0, done.err
    assert moves == [SECOND] * 4


def test_a_run_trains_on_it(moves: list[torch.device], tiny_recipe: dict[str, Any]) -> None:
    from tellapart.recipe.reading import check_recipe
    from tellapart.training.build import TrainingSetup
    from tellapart.training.runs import upstream

    setup = TrainingSetup(check_recipe(tiny_recipe, "test"), upstream)
    _ = setup.learner, setup.scorer
    assert moves == [SECOND] * 2


@pytest.mark.gpu
def test_captions_on_the_device_are_those_of_the_cpu(
    cli: Cli, tiny_captioner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert best_device().type != "cpu"
    data = "scenes:plain?n=40&split=test"
    for name in ("device", "cpu"):
        if name == "cpu":
            monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
        for options in ((), ("--samples", 3)):
            out = tmp_path / f"{name}{len(options)}.jsonl"
            assert cli("caption", tiny_captioner, data, "-o", out, "--max-tokens", 6, *options).status == 0
    for number in (0, 2):
        lines = [(tmp_path / f"{name}{number}.jsonl").read_text().splitlines() for name in ("device", "cpu")]
        assert sum(a == b for a, b in zip(*lines, strict=True)) >= 38  # sums in another order turn a tie now and then
