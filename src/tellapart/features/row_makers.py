"""Converts pictures to rows of the feature store: features, or a mark for each picture that can be decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from tellapart.data.pictures import is_clip, sample_frames
from tellapart.models.independent_rows import encode_independently
from tellapart.types import Encoder, Picture


@dataclass(frozen=True)
class RowMaker:
    """Converts pictures to rows, like an `Encoder`, but returns NumPy arrays.

    ``label`` identifies the weights, the preprocessing and the kind of row. ``prepare`` reduces a picture, or
    ``frames`` frames of a clip, to the encoder's input, which can be 100 times smaller. ``rows`` converts a batch of
    these inputs to rows. ``precision`` and ``name`` describe the model.
    """

    label: str
    prepare: Callable[[Sequence[Image.Image]], Any]
    rows: Callable[[Sequence[Any]], np.ndarray]
    frames: int = 1
    precision: str = "fp32"
    name: str = ""

    def of(self, picture: Picture) -> Any:
        """Prepares a picture or a clip. Raises `PictureError`."""
        return self.prepare(sample_frames(picture, self.frames))

    def key(self, picture: Picture, content: str) -> str:
        """Derives a picture's row key from its content key."""
        return f"{content}-{self.frames}" if is_clip(picture) else content


def head_rows(encoder: Encoder, rows_NP: np.ndarray) -> np.ndarray:
    """Computes an encoder's features, float32 N×…, from cached outputs of its frozen ``tower``."""
    tower_NP = torch.from_numpy(rows_NP)
    with torch.no_grad():
        features = encode_independently(lambda some_R: encoder.encode(tower_NP[some_R]), len(tower_NP))
        if encoder.join is not None:
            features = torch.stack([encoder.join(one) for one in features[:, None]])
    return features.float().cpu().numpy()


def encoder_rows(encoder: Encoder) -> RowMaker:
    """Adapts an encoder for the store. Computes float32 rows without gradients; half precision is kept on disk."""

    def rows(pixels_FCHW: Sequence[Any]) -> np.ndarray:
        with torch.no_grad():
            frames_FCHW = torch.cat(list(pixels_FCHW))
            features = encode_independently(lambda some_R: encoder.encode(frames_FCHW[some_R]), len(frames_FCHW))
            if encoder.join is not None:
                each = torch.split(features, [len(frames) for frames in pixels_FCHW])
                features = torch.stack([encoder.join(frames) for frames in each])
        return features.detach().float().cpu().numpy()

    label = f"features {encoder.fingerprint}" + (f" {encoder.precision}" if encoder.precision != "fp32" else "")
    return RowMaker(label, encoder.pixels, rows, encoder.frames, encoder.precision, encoder.name)


def decodable() -> RowMaker:
    """Returns a `RowMaker` whose rows are one byte per decodable picture, to find broken pictures before training."""
    return RowMaker("decodes", lambda images: np.ones(1, np.uint8), np.stack)
