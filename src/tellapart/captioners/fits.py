"""Whether the parts of a captioner that was just loaded belong together."""

from __future__ import annotations

from typing import Any

from tellapart.captioners.base import Captioner
from tellapart.errors import TellapartError


def check_fit(captioner: Captioner) -> None:
    """Raises `TellapartError` for a processor or a tokenizer that is not the model's own."""
    if captioner.processor is not None:
        check_pictures(captioner)
    check_tokens(captioner)
    prompt = getattr(captioner, "before", None)
    getattr(prompt, "of_blank", None)  # made once: a prompt that the processor refuses is an error now


def check_pictures(captioner: Captioner) -> None:
    """The processor makes pictures as large as the vision encoder has places for."""
    from PIL import Image

    config: Any = captioner.model.config
    side = getattr(getattr(config, "vision_config", None), "image_size", None)
    pixels = captioner.pixels([Image.new("RGB", (64, 48))])
    if isinstance(side, int) and pixels.ndim == 4 and tuple(pixels.shape[-2:]) != (side, side):
        found = f"{pixels.shape[-1]}×{pixels.shape[-2]}"
        raise TellapartError(
            f"{captioner.name}: its processor makes pictures of {found} pixels, and its vision encoder reads "
            f"{side}×{side}; expected the processor that the model was saved with (preprocessor_config.json)"
        )


def check_tokens(captioner: Captioner) -> None:
    """The language model has a word embedding for every token of the tokenizer, but for those of pictures."""
    places = set(getattr(captioner, "places", ()))
    highest = max(set(captioner.tokenizer.get_vocab().values()) - places, default=0)
    text = getattr(captioner.model.config, "text_config", captioner.model.config)
    rows = getattr(text, "vocab_size", None)
    if isinstance(rows, int) and highest >= rows:
        raise TellapartError(
            f"{captioner.name}: its tokenizer has {highest + 1:,} tokens and its language model {rows:,}; expected the "
            "tokenizer that the model was saved with"
        )
