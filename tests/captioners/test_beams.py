"""Beam search after a picture that is read once, against transformers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from test_table import CAPTIONERS
from tiny_blip import save_blip

from benchmarks import transformers_generate
from tellapart.captioners import load_captioner
from tellapart.captioners.base import to_rollout
from tellapart.models.loading import Decoding

TEXT = "a red dog on the green grass two cats and one blue ball near small house tree"
WORDS = TEXT.split()


@pytest.mark.long
@pytest.mark.parametrize("lean", [-1.0, 0.5, 2.0])
@pytest.mark.parametrize(("beams", "samples", "tokens"), [(5, 1, 9), (3, 3, 6), (2, 1, 1), (1, 1, 4), (5, 5, 15)])
def test_hypotheses_of_any_length_are_those_of_transformers(
    tmp_path: Path, lean: float, beams: int, samples: int, tokens: int
) -> None:
    """``lean``: how much the end is preferred, so that captions end after one, a few, or all tokens."""
    captioner: Any = load_captioner(str(save_blip(tmp_path, WORDS, layers=2)))
    torch.manual_seed(int(10 * lean) + beams)
    with torch.no_grad():
        for parameter in captioner.model.parameters():
            parameter.mul_(2.0)
        bias = captioner.model.text_decoder.cls.predictions.decoder.bias
        bias.normal_(0, 2)
        bias[captioner.end] += lean
        captioner.model.double()
        visual = captioner.encode(torch.randn(7, 3, 32, 32))
        decoding = Decoding(kind="beam", beams=beams, samples=samples, max_tokens=tokens)
        theirs_RT = transformers_generate.generate(captioner, visual, decoding)
    theirs = to_rollout(theirs_RT, captioner.tokenizer, [captioner.end], samples)
    ours = captioner.generate(visual, decoding)
    assert ours.texts == theirs.texts
    for ours_T, valid_T, theirs_T, there_T in zip(
        ours.tokens_RT, ours.valid_RT, theirs.tokens_RT, theirs.valid_RT, strict=True
    ):
        assert ours_T[valid_T].tolist() == theirs_T[there_T].tolist()


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
