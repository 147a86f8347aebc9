"""A small vision encoder to train from scratch.

The model is a transformers ResNet with the same two outputs as CLIP's vision models: a pooled vector and one vector per
grid cell. It can therefore replace any CLIP vision model.
"""

from __future__ import annotations

from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, AutoModel, ResNetConfig, ResNetModel
from transformers.modeling_outputs import BaseModelOutputWithPooling


@strict
class GridResNetConfig(ResNetConfig):
    """A `ResNetConfig` that also defines ``hidden_size``, the width of its output.

    ``stem_pooling``: whether max-pooling halves the resolution again before the first stage. Disable this for small
    pictures.
    """

    model_type = "grid_resnet"
    stem_pooling: bool = True

    @property
    def hidden_size(self) -> int:
        return list(self.hidden_sizes or ())[-1]


class GridResNet(ResNetModel):
    """ResNet with ``last_hidden_state`` B×cells×D (row by row) and ``pooler_output`` B×D, the mean over all cells."""

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
    """Returns a configuration with four stages of ``depth`` basic blocks each.

    The first stage has ``width`` channels, and the number of channels doubles with each stage.
    """
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
