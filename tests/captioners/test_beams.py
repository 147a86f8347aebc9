"""Beam search after a picture that is read once, against transformers' own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from beam_rules import forced_end, transformers_4_15
from PIL import Image
from test_table import CAPTIONERS
from tiny_blip import save_blip

from benchmarks import transformers_generate
from tellapart.captioners import load_captioner
from tellapart.captioners.decoding import to_rollout
from tellapart.models.decoding import Decoding

TEXT = "a red dog on the green grass two cats and one blue ball near small house tree"
WORDS = TEXT.split()


def leaning_captioner(folder: Path, lean: float, seed: int) -> tuple[Any, torch.Tensor]:
    """A tiny BLIP in float64 whose end token is preferred by ``lean``, and the features of seven pictures."""
    captioner: Any = load_captioner(str(save_blip(folder, WORDS, layers=2)))
    torch.manual_seed(int(10 * lean) + seed)
    with torch.no_grad():
        for parameter in captioner.model.parameters():
            parameter.mul_(2.0)
        bias = captioner.model.text_decoder.cls.predictions.decoder.bias
        bias.normal_(0, 2)
        bias[captioner.end] += lean
        captioner.model.double()
        visual = captioner.encode(torch.randn(7, 3, 32, 32))
    return captioner, visual


@pytest.mark.long
@pytest.mark.parametrize("lean", [-1.0, 0.5, 2.0])
@pytest.mark.parametrize(("beams", "samples", "tokens"), [(5, 1, 9), (3, 3, 6), (2, 1, 1), (1, 1, 4), (5, 5, 15)])
def test_hypotheses_of_any_length_are_those_of_transformers(
    tmp_path: Path, lean: float, beams: int, samples: int, tokens: int
) -> None:
    """``lean``: how much the end is preferred, so that captions end after one, a few, or all tokens."""
    captioner, visual = leaning_captioner(tmp_path, lean, beams)
    decoding = Decoding(kind="beam", beams=beams, samples=samples, max_tokens=tokens)
    with torch.no_grad():
        theirs_RT = transformers_generate.generate(captioner, visual, decoding)
    theirs = to_rollout(theirs_RT, captioner.tokenizer, [captioner.end], samples)
    ours = captioner.generate(visual, decoding)
    assert ours.texts == theirs.texts
    for ours_T, valid_T, theirs_T, there_T in zip(
        ours.tokens_RT, ours.valid_RT, theirs.tokens_RT, theirs.valid_RT, strict=True
    ):
        assert ours_T[valid_T].tolist() == theirs_T[there_T].tolist()


def next_log_probabilities(captioner: Any, visual: torch.Tensor) -> Callable[[list[int]], torch.Tensor]:
    """Log-probabilities of the next token of one picture, by a pass over all tokens before it."""

    def next_V(tokens: list[int]) -> torch.Tensor:
        tokens_1T = torch.tensor([[*tokens, captioner.end]])
        with torch.no_grad():
            logits_1TV = captioner.logits(visual, tokens_1T, torch.ones_like(tokens_1T, dtype=torch.bool))
        return logits_1TV[0, -1].float().log_softmax(-1).double()

    return next_V


@pytest.mark.parametrize("stop", ["", "e"])
@pytest.mark.parametrize("lean", [-1.0, 0.5, 2.0])
@pytest.mark.parametrize(("beams", "samples", "tokens"), [(5, 1, 9), (3, 3, 6), (2, 1, 1)])
def test_lengths_with_the_prompt_are_those_of_transformers_4_15(
    tmp_path: Path, lean: float, beams: int, samples: int, tokens: int, stop: str
) -> None:
    """Token for token, also where a token with ``stop`` in it is followed by an end token that costs nothing."""
    captioner, visual = leaning_captioner(tmp_path, lean, beams)
    captioner.set_stop(stop)
    decoding = Decoding(kind="beam", beams=beams, samples=samples, max_tokens=tokens, length_penalty_over="all")
    ours = captioner.generate(visual, decoding)
    theirs = []
    for picture_1PD in visual.split(1):
        next_V = forced_end(next_log_probabilities(captioner, picture_1PD), captioner.stop_tokens[1:], captioner.end)
        settings = {"beams": beams, "samples": samples, "new_tokens": tokens, "end": captioner.end}
        theirs += transformers_4_15(next_V, prompt=len(captioner.start), **settings)
    written = [row[valid].tolist() for row, valid in zip(ours.tokens_RT, ours.valid_RT, strict=True)]
    assert [row[:-1] if row[-1] == captioner.end else row for row in written] == theirs


def test_features_without_gradient_are_those_with_it(tmp_path: Path) -> None:
    """The fused attention of inference against transformers' own."""
    captioner: Any = load_captioner(str(save_blip(tmp_path, WORDS, layers=2)))
    captioner.model.double()
    pixels_BCHW = torch.randn(3, 3, 32, 32)
    plain = captioner.encode(pixels_BCHW)
    with torch.no_grad():
        fused = captioner.encode(pixels_BCHW)
    assert plain.requires_grad and not fused.requires_grad
    torch.testing.assert_close(fused, plain.detach(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["ClipCap, MLP", "BLIP"])
def test_a_language_models_own_settings_of_generation_are_left_out(name: str, tmp_path: Path) -> None:
    """Else beams follow them, greedy captions do not, and neither does the model once it is saved."""
    captioner: Any = load_captioner(str(CAPTIONERS[name](tmp_path)))
    visual = captioner.encode(captioner.pixels([Image.new("RGB", (48, 32), "red")])).detach()
    decoding = Decoding(kind="beam", beams=2, max_tokens=7)
    owners = [m for m in captioner.model.modules() if getattr(m, "generation_config", None) is not None]
    assert owners
    found = captioner.generate(visual, decoding).texts
    for owner in owners:
        owner.generation_config.repetition_penalty = 9.0
    assert captioner.generate(visual, decoding).texts == found
    assert all(owner.generation_config.repetition_penalty == 9.0 for owner in owners)
