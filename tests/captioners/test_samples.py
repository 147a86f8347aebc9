"""What is sampled of a picture is the same in any batch, for every captioner."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from test_table import CAPTIONERS

from tellapart.captioners import load_captioner
from tellapart.models.decoding import Decoding
from tellapart.types import Rollout
from tellapart.utils.rng import ItemSeeds

WRITTEN = Decoding(kind="sample", samples=3, max_tokens=6, temperature=1.3)
IDS = tuple(f"{number}.jpg" for number in range(5))


def visual_of(captioner: Any) -> torch.Tensor:
    """Of five photos of 3:2."""
    pictures = []
    for number in range(len(IDS)):
        noise = torch.randint(0, 256, (40, 60, 3), generator=torch.Generator().manual_seed(number))
        pictures.append(Image.fromarray(noise.to(torch.uint8).numpy()))
    with torch.no_grad():
        return captioner.encode(captioner.pixels(pictures))


def check(captioner: Any) -> None:
    visual, seeds = visual_of(captioner), ItemSeeds(IDS, seed=2, step=3)

    def texts(places: list[int]) -> dict[int, list[str]]:
        chosen = ItemSeeds(tuple(IDS[place] for place in places), seed=2, step=3)
        told: Rollout = captioner.generate(visual[places], WRITTEN, chosen)
        assert len(told.texts) == 3 * len(places) == len(told.tokens_RT)
        return {place: told.texts[3 * n : 3 * n + 3] for n, place in enumerate(places)}

    whole = texts([0, 1, 2, 3, 4])
    assert len({text for three in whole.values() for text in three}) > 5
    assert texts([4, 2, 0, 3, 1]) == whole
    assert texts([3]) | texts([0, 4]) | texts([2, 1]) == whole
    torch.manual_seed(0)  # without seeds it is torch's generator that decides
    free = captioner.generate(visual, WRITTEN).texts
    torch.manual_seed(0)
    assert captioner.generate(visual, WRITTEN).texts == free
    assert free != captioner.generate(visual, WRITTEN, seeds).texts


@pytest.mark.long
@pytest.mark.parametrize("name", CAPTIONERS)
def test_samples_belong_to_their_picture(name: str, tmp_path: Path) -> None:
    captioner = load_captioner(str(CAPTIONERS[name](tmp_path)))
    check(captioner)
    del captioner
    gc.collect()
