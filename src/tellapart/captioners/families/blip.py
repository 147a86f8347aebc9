"""``model_type = "blip"``."""

from __future__ import annotations

from typing import Any

from tellapart.captioners.base import Captioner
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry, pretrained


def classes() -> tuple[Any, type[Captioner]]:
    """The model's class and its captioner's."""
    from transformers import BlipForConditionalGeneration

    from tellapart.captioners.blip import Blip

    return BlipForConditionalGeneration, Blip


CAPTIONERS.register(
    CaptionerEntry(
        name="blip",
        factory=pretrained(classes),
        help="A vision transformer and a text decoder with cross-attention.",
        label="BLIP",
        model_type=True,
    )
)
