"""``model_type = "recurrent_captioner"``."""

from __future__ import annotations

from typing import Any

import torch

from tellapart.captioners.base import Captioner
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry


def load(folder: str) -> tuple[Any, type[Captioner]]:
    """The model, in float32, and the class of its captioner."""
    from tellapart.captioners.recurrent import Recurrent, RecurrentModel

    model = RecurrentModel.from_pretrained(folder, dtype=torch.float32, use_safetensors=True, trust_remote_code=False)
    return model, Recurrent


CAPTIONERS.register(
    CaptionerEntry(
        name="recurrent_captioner",
        factory=load,
        help="An LSTM behind image features, with or without attention.",
        label="LSTM",
        model_type=True,
    )
)
