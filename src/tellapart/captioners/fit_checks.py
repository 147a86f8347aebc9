"""Checks that a captioner's processor and tokenizer fit its model."""

from __future__ import annotations

from typing import Any

from PIL import Image

from tellapart.captioners.captioner import Captioner
from tellapart.errors import TellapartError


def check_fit(captioner: Captioner) -> None:
    """Raises `TellapartError` if the processor or the tokenizer does not fit the model."""
    if captioner.processor is not None:
        check_pictures(captioner)
    check_tokens(captioner)
    prompt = getattr(captioner, "before", None)
    getattr(prompt, "of_blank", None)  # evaluate this here, so that a prompt that the processor rejects fails early


def check_pictures(captioner: Captioner) -> None:
    """Raises `TellapartError` if the processor's picture size does not match the vision encoder's input size."""
    config: Any = captioner.model.config
    side = getattr(getattr(config, "vision_config", None), "image_size", None)
    pixels = captioner.pixels([Image.new("RGB", (64, 48))])
    if isinstance(side, int) and pixels.ndim == 4 and tuple(pixels.shape[-2:]) != (side, side):
        shape = f"{pixels.shape[-1]}×{pixels.shape[-2]}"
        raise TellapartError(
            f"{captioner.name}: its processor returns pictures of {shape} pixels, but its vision encoder expects "
            f"{side}×{side}; use the processor saved with the model (preprocessor_config.json)"
        )


def check_tokens(captioner: Captioner) -> None:
    """Raises `TellapartError` if the tokenizer has a token, other than a picture token, without a word embedding in the
    language model.
    """
    places = set(getattr(captioner, "places", ()))
    highest = max(set(captioner.tokenizer.get_vocab().values()) - places, default=0)
    text = getattr(captioner.model.config, "text_config", captioner.model.config)
    rows = getattr(text, "vocab_size", None)
    if isinstance(rows, int) and highest >= rows:
        raise TellapartError(
            f"{captioner.name}: its tokenizer has {highest + 1:,} tokens, but its language model has only {rows:,} "
            "word embeddings; use the tokenizer saved with the model"
        )
