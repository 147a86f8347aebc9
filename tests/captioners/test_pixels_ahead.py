"""Pixels that are made ahead of the model, in threads, are those of the family's own processor, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import FAMILIES
from PIL import Image

from tellapart.captioners import load_captioner
from tellapart.utils.ahead import ahead


def pictures() -> list[Image.Image]:
    """Photos of 3:2 and 2:3, large enough to be scaled down."""
    rng = np.random.default_rng(0)
    sizes = [(120, 80), (80, 120)] * 6
    return [Image.fromarray(rng.integers(0, 255, (h, w, 3), np.uint8)) for w, h in sizes]


@pytest.mark.parametrize("family", ["blip2", "git", "llava", "llava_next", "qwen2_vl", "vit_gpt2"])
def test_pixels_of_threads_are_those_of_the_processor(family: str, tmp_path: Path) -> None:
    captioner: Any = load_captioner(str(FAMILIES[family](tmp_path)))
    assert captioner.pixels_in_threads
    photos = pictures()
    threaded = list(ahead(lambda photo: captioner.pixels([photo]), photos, buffer=8, threads=4))
    for photo, row in zip(photos, threaded, strict=True):
        assert torch.equal(row, captioner.pixels([photo]))
    read = captioner.processor(images=photos, return_tensors="pt")
    if captioner.packed is not None and captioner.packed.grids:
        tensors = captioner.packed.unpack(torch.cat(threaded))
        for name in ("image_grid_thw", "pixel_values"):
            assert torch.equal(torch.cat([own[name] for own in tensors]), read[name])
    elif captioner.packed is not None:
        tensors = captioner.packed.unpack(torch.cat(threaded))
        for own, expected in zip(tensors, read["pixel_values"], strict=True):
            assert torch.equal(own["pixel_values"][0], expected[: own["pixel_values"].shape[1]])
    else:
        assert torch.equal(torch.cat(threaded), read["pixel_values"])
