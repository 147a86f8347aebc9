"""Every family of captioners in bfloat16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from families import FAMILIES
from PIL import Image

from tellapart.captioners import load_captioner
from tellapart.models.decoding import Decoding


@pytest.mark.long
@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_family_writes_in_bf16_about_what_it_writes_in_fp32(family: str, tmp_path: Path) -> None:
    """Log-probabilities of random weights differ by what eight bits of mantissa leave."""
    folder = FAMILIES[family](tmp_path)
    drawn = np.random.default_rng(0)
    photos = [Image.fromarray(drawn.integers(0, 256, shape, dtype=np.uint8)) for shape in ((32, 48, 3), (48, 32, 3))]
    found = []
    for precision in ("fp32", "bf16"):
        captioner = load_captioner(str(folder), precision=precision)
        visual = torch.cat([captioner.encoder.encode(captioner.pixels([photo])) for photo in photos])
        tokens, valid = captioner.pad(captioner.tokenize(["a red cat", "two dogs"]))
        with torch.no_grad():
            found.append(captioner.logits(captioner.inputs(visual), tokens, valid).float().log_softmax(-1))
        assert (
            len(captioner.generate(captioner.inputs(visual), Decoding(kind="beam", beams=2, max_tokens=4)).texts) == 2
        )
    assert float((found[0] - found[1]).abs().mean()) < 0.05 * float(found[0].std())
