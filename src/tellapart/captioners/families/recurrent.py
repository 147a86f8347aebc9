"""``model_type = "recurrent_captioner"``."""

from __future__ import annotations

from typing import Any

from tellapart.captioners.base import Captioner
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry, pretrained


def classes() -> tuple[Any, type[Captioner]]:
    """The model's class and its captioner's."""
    from tellapart.captioners.recurrent import Recurrent, RecurrentModel

    return RecurrentModel, Recurrent


CAPTIONERS.register(
    CaptionerEntry(
        name="recurrent_captioner",
        factory=pretrained(classes),
        help="An LSTM behind image features, with or without attention.",
        label="LSTM",
        model_type=True,
    )
)
