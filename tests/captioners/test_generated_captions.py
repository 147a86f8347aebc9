"""Captions that are generated in batches."""

from __future__ import annotations

import torch

from tellapart.captioners import generate_captions, load_captioner
from tellapart.models.decoding import Decoding
from tellapart.scenes import Scenes


def test_the_truncated_captions_of_all_batches_are_known() -> None:
    captioner = load_captioner("scenes")
    with torch.no_grad():
        visual = captioner.encode(captioner.pixels([scene.image() for scene in Scenes(6)]))
    texts = generate_captions(captioner, visual, Decoding(max_tokens=3), batch_size=1)
    assert captioner.cut == set(texts) and len(captioner.cut) > 1
