"""Reads any vision encoder: its configuration and width, and its output as cells or as one pooled vector."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AutoConfig
from transformers.configuration_utils import PreTrainedConfig

import tellapart.models.clip_resnet
import tellapart.models.efficientnet
import tellapart.models.grid_resnet  # noqa: F401  (these register their classes with transformers)
from tellapart.errors import UsageError


def config_of(value: dict[str, Any] | PreTrainedConfig) -> PreTrainedConfig:
    """Builds a transformers configuration from its entry in a ``config.json``."""
    if isinstance(value, PreTrainedConfig):
        return value
    settings = dict(value)
    return AutoConfig.for_model(settings.pop("model_type"), **settings)


def width_of(config: Any) -> int:
    """Returns D, the width of a vision encoder's output.

    Raises `UsageError` if the configuration does not define the width.
    """
    sizes = getattr(config, "hidden_sizes", None)
    width = getattr(config, "hidden_size", None) or getattr(config, "num_features", None) or (sizes[-1] if sizes else 0)
    if not width:
        raise UsageError(
            f"{config.model_type} does not define the width of its output; expected a vision encoder with hidden_size"
        )
    return int(width)


def cells_of(output: Any, grid: int = 0) -> torch.Tensor:
    """Returns a vision encoder's output (a CNN's feature map or a transformer's tokens) as B×cells×D, row by row.

    ``grid``: number of cells per side after pooling, which also drops a CLS token; 0 disables pooling. Raises
    `UsageError` if the tokens to pool do not form a square.
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
