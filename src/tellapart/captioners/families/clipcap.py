"""``model_type = "clipcap"``."""

from __future__ import annotations

from typing import Any

from tellapart.captioners.base import Captioner
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry, pretrained


def classes() -> tuple[Any, type[Captioner]]:
    """The model's class and its captioner's."""
    from tellapart.captioners.clipcap import ClipCap, ClipCapModel

    return ClipCapModel, ClipCap


CAPTIONERS.register(
    CaptionerEntry(
        name="clipcap",
        factory=pretrained(classes),
        help="A vision encoder, a mapper and a causal language model.",
        label="ClipCap",
        model_type=True,
    )
)
