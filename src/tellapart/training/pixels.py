"""Prepares pictures for a vision encoder that is being trained."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image

from tellapart.captioners import Captioner
from tellapart.features.row_makers import RowMaker
from tellapart.scorers import Scorer
from tellapart.training.blip_augmentation import BLIP_DRAWS, blip_augmented
from tellapart.types import Picture
from tellapart.utils.ahead import ahead
from tellapart.utils.rng import ItemSeeds

EQUAL = 1e-4  # tolerance in standard deviations; one grey level is about a hundred times larger


class TrainingPixels:
    """Prepares pictures for a vision encoder that is being trained. For clips, uses the middle frame.

    If the processor resizes all pictures to one shape, they are stored as uint8 H×W×C, and normalized on the device
    when a batch is created (``as_bytes``). If pictures keep their own shapes, or the processor does other
    preprocessing, the output of ``pixels`` is stored in float32 instead.
    """

    def __init__(self, learner: Captioner | Scorer) -> None:
        self.learner = learner
        self.as_bytes = self._gives_bytes()

    def maker(self) -> RowMaker:
        """Returns the `RowMaker` for `FeatureStore.readable` and `FeatureStore.rows`.

        Its label identifies the preprocessing.
        """
        if not self.as_bytes:
            pixels = self.learner.pixels
            fingerprint = self.learner.encoder.fingerprint
            label, name = f"pixels float32 {fingerprint}", f"{self.learner.name}, pixels"
            return RowMaker(label, lambda images: pixels(images[:1])[0].numpy(), np.stack, name=name)
        settings = json.dumps(self.learner.processor.to_dict(), sort_keys=True, default=str)
        digest = hashlib.blake2b(settings.encode(), digest_size=12).hexdigest()
        label, name = f"pixels uint8 {digest}", f"{self.learner.name}, pixels"
        return RowMaker(label, lambda images: self._bytes(images[0]), np.stack, name=name)

    def augmented(self, pictures: Sequence[Picture], seeds: ItemSeeds) -> np.ndarray:
        """Reads pictures and augments them with `blip_augmented`, in threads. Returns uint8 B×H×W×C, for `tensor`."""
        height, width = self.size
        draws = zip(pictures, seeds.uniform("blip", BLIP_DRAWS).tolist(), strict=True)

        def made(one: tuple[Picture, list[float]]) -> np.ndarray:
            picture, drawn = one
            return self._bytes(blip_augmented(picture.image(), (width, height), drawn))

        return np.stack(list(ahead(made, draws, buffer=len(pictures))))

    @cached_property
    def size(self) -> tuple[int, int]:
        """Returns the height and width of a stored picture, in pixels."""
        height, width, _ = self._bytes(Image.new("RGB", (64, 64))).shape
        return height, width

    def tensor(self, rows: np.ndarray) -> torch.Tensor:
        """Converts stored rows to the vision encoder's input on the learner's device: float B×C×H×W, or B×…."""
        block = torch.from_numpy(np.ascontiguousarray(rows)).to(self.learner.device)
        return normalize(block, self.learner.processor) if self.as_bytes else block

    def _bytes(self, image: Image.Image) -> np.ndarray:
        """Resizes and crops a picture, without rescaling or normalizing its values. Returns uint8 H×W×C."""
        read = self.learner.processor(images=[image], do_rescale=False, do_normalize=False, return_tensors="np")
        picture_CHW: np.ndarray = np.asarray(read["pixel_values"])[0]
        return picture_CHW.transpose(1, 2, 0).round().clip(0, 255).astype(np.uint8)

    def _gives_bytes(self) -> bool:
        """Returns True if normalizing `_bytes` gives the same result as ``pixels``, for a wide and a tall picture."""
        noise = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
        images = [Image.fromarray(noise), Image.fromarray(noise.transpose(1, 0, 2))]
        expected = [self.learner.pixels([image]).cpu().float() for image in images]
        if self.learner.processor is None or any(x.ndim != 4 or x.shape != expected[0].shape for x in expected):
            return False
        actual = [normalize(torch.from_numpy(self._bytes(image))[None], self.learner.processor) for image in images]
        return all(
            x.shape == y.shape and torch.allclose(x, y, rtol=0, atol=EQUAL)
            for x, y in zip(actual, expected, strict=True)
        )


def normalize(pictures_BHWC: torch.Tensor, processor: Any) -> torch.Tensor:
    """Rescales and normalizes uint8 B×H×W×C in the same way as the processor. Returns float B×C×H×W."""
    device, grey_levels = pictures_BHWC.device, 1.0
    if getattr(processor, "do_rescale", True):
        grey_levels = round(1 / getattr(processor, "rescale_factor", 1 / 255), 6)
    mean, std = torch.zeros(1), torch.ones(1)
    if getattr(processor, "do_normalize", True):
        mean, std = torch.tensor(processor.image_mean), torch.tensor(processor.image_std)
    mean, std = (x.to(device) * grey_levels for x in (mean, std))
    return ((pictures_BHWC.float() - mean) / std).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
