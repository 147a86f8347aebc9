"""Vision encoders: cells and pooled output of any transformers encoder, and a small encoder to train from scratch.

The small encoder is a transformers ResNet with the same two outputs as CLIP's vision models: a pooled vector and one
vector per grid cell. It can therefore replace any CLIP vision model.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, AutoModel, ResNetConfig, ResNetModel
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutputWithPooling

import tellapart.models.clip_resnet
import tellapart.models.efficientnet  # noqa: F401  (registers its classes with transformers)
from tellapart.errors import UsageError


def config_of(value: dict[str, Any] | PreTrainedConfig) -> PreTrainedConfig:
    """Builds a transformers configuration from its entry in a ``config.json``."""
    if isinstance(value, PreTrainedConfig):
        return value
    settings = dict(value)
    return AutoConfig.for_model(settings.pop("model_type"), **settings)


def width_of(config: Any) -> int:
    """Returns D, the width of a vision encoder's output. Raises `UsageError` if its configuration does not
    define it.
    """
    sizes = getattr(config, "hidden_sizes", None)
    width = getattr(config, "hidden_size", None) or getattr(config, "num_features", None) or (sizes[-1] if sizes else 0)
    if not width:
        raise UsageError(
            f"a {config.model_type} does not define the width of its output; expected a vision encoder with hidden_size"
        )
    return int(width)


def cells_of(output: Any, grid: int = 0) -> torch.Tensor:
    """Returns a vision encoder's output as B×cells×D in row-major order: a CNN's map or a transformer's tokens.

    ``grid``: cells per side after pooling, which also drops a CLS token; 0 disables pooling. Raises `UsageError` if the
    tokens do not form a square.
    """
    cells_BPD: torch.Tensor = output.last_hidden_state
    if not grid:
        return cells_BPD.flatten(2).transpose(1, 2) if cells_BPD.ndim == 4 else cells_BPD
    if cells_BPD.ndim == 3:
        side = math.isqrt(cells_BPD.shape[1])
        first = cells_BPD.shape[1] - side * side
        if first > 1:
            raise UsageError(f"{cells_BPD.shape[1]} cells do not form a square; remove grid")
        cells_BPD = cells_BPD[:, first:].transpose(1, 2).unflatten(2, (side, side))
    return F.adaptive_avg_pool2d(cells_BPD, grid).flatten(2).transpose(1, 2)


def pooled_of(output: Any) -> torch.Tensor:
    """Returns one vector per picture, B×D: the encoder's pooled output, or the mean over its cells."""
    pooled: torch.Tensor | None = getattr(output, "pooler_output", None)
    return cells_of(output).mean(1) if pooled is None else pooled.flatten(1)


@strict
class GridResNetConfig(ResNetConfig):
    """A `ResNetConfig` that also defines ``hidden_size``, the width of its output.

    ``stem_pooling``: whether max-pooling halves the resolution again before the first stage; disable it for small
    pictures.
    """

    model_type = "grid_resnet"
    stem_pooling: bool = True

    @property
    def hidden_size(self) -> int:
        return list(self.hidden_sizes or ())[-1]


class GridResNet(ResNetModel):
    """ResNet with ``last_hidden_state`` B×cells×D (row by row) and ``pooler_output`` B×D, their mean."""

    config_class = GridResNetConfig

    def __init__(self, config: GridResNetConfig) -> None:
        super().__init__(config)
        if not config.stem_pooling:
            self.embedder.pooler = torch.nn.Identity()  # type: ignore[assignment]

    def forward(self, pixel_values: torch.Tensor, **_: Any) -> BaseModelOutputWithPooling:
        pixels = pixel_values.contiguous(memory_format=torch.channels_last)
        grid = self.encoder(self.embedder(pixels)).last_hidden_state
        cells_BPD = grid.flatten(2).transpose(1, 2)
        return BaseModelOutputWithPooling(last_hidden_state=cells_BPD, pooler_output=cells_BPD.mean(1))


def grid_resnet_config(width: int, depth: int = 1, *, stem_pooling: bool = True) -> GridResNetConfig:
    """Returns a configuration with four stages of ``depth`` basic blocks, and ``width`` channels that double per stage."""
    sizes = [width * factor for factor in (1, 2, 4, 8)]
    return GridResNetConfig(
        embedding_size=width,
        hidden_sizes=sizes,
        depths=[depth] * 4,
        layer_type="basic",
        stem_pooling=stem_pooling,
    )


AutoConfig.register("grid_resnet", GridResNetConfig)
AutoModel.register(GridResNetConfig, GridResNet)
