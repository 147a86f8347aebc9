"""A captioner as `load_captioner` loads it, except for a few colours: pictures that crash the process or its memory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image

from tellapart.captioners import Captioner, load_captioner

CRASH, MEMORY = (255, 0, 254), (254, 0, 255)


def make(model: str, delay: str = "0") -> Captioner:
    """``model``: its folder; ``delay``: seconds that each picture takes."""
    captioner = load_captioner(model, "cpu")
    pixels, wait = captioner.pixels, float(delay)

    def poisoned(images: Sequence[Image.Image]) -> Any:
        for image in images:
            colour = image.getpixel((0, 0))
            if colour == CRASH:
                os.kill(os.getpid(), signal.SIGSEGV)
            if colour == MEMORY:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
            time.sleep(wait)
        return pixels(images)

    captioner.pixels = poisoned  # type: ignore[method-assign]
    return captioner
