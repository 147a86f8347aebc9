"""``model_type = "blip"``."""

from __future__ import annotations

from typing import Any

import torch

from tellapart.captioners.base import Captioner
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry


def load(folder: str) -> tuple[Any, type[Captioner]]:
    """The model, in float32, and the class of its captioner."""
    from transformers import BlipForConditionalGeneration

    from tellapart.captioners.blip import Blip

    model = BlipForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
    )
    return model, Blip


CAPTIONERS.register(
    CaptionerEntry(
        name="blip",
        factory=load,
        help="A vision transformer and a text decoder with cross-attention.",
        label="BLIP",
        model_type=True,
    )
)
