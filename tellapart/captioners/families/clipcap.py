"""``model_type = "clipcap"``."""

from __future__ import annotations

from typing import Any

import torch

from tellapart.captioners.base import Captioner
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry


def load(folder: str) -> tuple[Any, type[Captioner]]:
    """The model, in float32, and the class of its captioner."""
    from tellapart.captioners.clipcap import ClipCap, ClipCapModel

    model = ClipCapModel.from_pretrained(folder, dtype=torch.float32, use_safetensors=True, trust_remote_code=False)
    return model, ClipCap


CAPTIONERS.register(
    CaptionerEntry(
        name="clipcap",
        factory=load,
        help="A vision encoder, a mapper and a causal language model.",
        label="ClipCap",
        model_type=True,
    )
)
