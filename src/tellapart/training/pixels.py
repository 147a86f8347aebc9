"""Pictures for a vision encoder that learns: what its own processor makes of them, so that training, validation,
captioning and scoring see the same pixels."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tellapart.features.store import RowMaker

if TYPE_CHECKING:
    from PIL import Image

    from tellapart.captioners import Captioner
    from tellapart.scorers import Scorer

EQUAL = 1e-4  # of a standard deviation; a step of one grey level is a hundred times as much


class TrainingPixels:
    """How pictures reach a vision encoder in training.

    Where the processor gives all pictures one shape they are kept as uint8 H×W×C, resized and cropped, and normalised
    on the device when a batch is made (``as_bytes``). Where it does not (pictures that keep their shapes), or where it
    does more than that, rows are kept in float32 as ``pixels`` gives them. Of clips it is the middle frame.
    """

    def __init__(self, learner: Captioner | Scorer) -> None:
        self.learner = learner
        self.as_bytes = self._gives_bytes()

    def maker(self) -> RowMaker:
        """For `FeatureStore.readable` and `FeatureStore.rows`; its label names the preprocessing."""
        if not self.as_bytes:
            pixels = self.learner.pixels
            fingerprint = self.learner.encoder.fingerprint
            label, name = f"pixels float32 {fingerprint}", f"{self.learner.name}, pixels"
            return RowMaker(label, lambda images: pixels(images[:1])[0].numpy(), np.stack, name=name)
        settings = json.dumps(self.learner.processor.to_dict(), sort_keys=True, default=str)
        digest = hashlib.blake2b(settings.encode(), digest_size=12).hexdigest()
        label, name = f"pixels uint8 {digest}", f"{self.learner.name}, pixels"
        return RowMaker(label, lambda images: self._bytes(images[0]), np.stack, name=name)

    def tensor(self, rows: np.ndarray) -> torch.Tensor:
        """Rows of the store as the vision encoder reads them, on the learner's device: float B×C×H×W, or B×… ."""
        block = torch.from_numpy(np.ascontiguousarray(rows)).to(self.learner.device)
        return normalise(block, self.learner.processor) if self.as_bytes else block

    def _bytes(self, image: Image.Image) -> np.ndarray:
        """A picture resized and cropped, H×W×C, before it is rescaled and normalised."""
        read = self.learner.processor(images=[image], do_rescale=False, do_normalize=False, return_tensors="np")
        picture_CHW: np.ndarray = np.asarray(read["pixel_values"])[0]
        return picture_CHW.transpose(1, 2, 0).round().clip(0, 255).astype(np.uint8)

    def _gives_bytes(self) -> bool:
        """Whether `_bytes`, normalised, is what ``pixels`` gives: tried on a wide and on a tall picture."""
        from PIL import Image

        noise = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
        images = [Image.fromarray(noise), Image.fromarray(noise.transpose(1, 0, 2))]
        wanted = [self.learner.pixels([image]).cpu().float() for image in images]
        if self.learner.processor is None or any(x.ndim != 4 or x.shape != wanted[0].shape for x in wanted):
            return False
        found = [normalise(torch.from_numpy(self._bytes(image))[None], self.learner.processor) for image in images]
        return all(
            x.shape == y.shape and torch.allclose(x, y, rtol=0, atol=EQUAL) for x, y in zip(found, wanted, strict=True)
        )


def normalise(pictures_BHWC: torch.Tensor, processor: Any) -> torch.Tensor:
    """uint8 B×H×W×C rescaled and normalised as the processor does it: float B×C×H×W."""
    device, grey_levels = pictures_BHWC.device, 1.0
    if getattr(processor, "do_rescale", True):
        grey_levels = round(1 / getattr(processor, "rescale_factor", 1 / 255), 6)
    mean, std = torch.zeros(1), torch.ones(1)
    if getattr(processor, "do_normalize", True):
        mean, std = torch.tensor(processor.image_mean), torch.tensor(processor.image_std)
    mean, std = (x.to(device) * grey_levels for x in (mean, std))
    return ((pictures_BHWC.float() - mean) / std).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
