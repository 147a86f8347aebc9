"""CLIP's ResNet (Radford et al. 2021, section 2.4), from RN50 to RN50x64. ClipCap and papers 2 and 3 use RN50x4.

The model has three convolutions in the stem, average pooling before every strided convolution, and attention pooling at
the end, whose query is the mean over the grid. Transformers has only CLIP's vision transformers, and timm's version
needs torchvision. Like `models.grid_resnet.GridResNet`, the model returns a pooled vector (of size 640 for RN50x4) and
one vector per grid cell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutputWithPooling

EXPANSION = 4  # ratio of the number of a block's output channels to the channels of its 3×3 convolution
HEAD = 64  # channels per attention head


@strict
class ClipResNetConfig(PreTrainedConfig):
    """Configuration of CLIP's ResNet. Defaults to RN50x4.

    ``layers``: number of blocks per stage. ``width``: number of channels after the stem. ``hidden_size``: size of the
    pooled vector.
    """

    model_type = "clip_resnet"

    layers: list[int] | tuple[int, ...] = (4, 6, 10, 6)
    width: int = 80
    image_size: int = 288
    hidden_size: int = 640


class ClipBottleneck(nn.Module):
    """Bottleneck block that downsamples with average pooling, including in the shortcut."""

    def __init__(self, before: int, narrow: int, stride: int) -> None:
        super().__init__()
        after = narrow * EXPANSION
        self.conv1, self.bn1 = nn.Conv2d(before, narrow, 1, bias=False), nn.BatchNorm2d(narrow)
        self.conv2, self.bn2 = nn.Conv2d(narrow, narrow, 3, padding=1, bias=False), nn.BatchNorm2d(narrow)
        self.conv3, self.bn3 = nn.Conv2d(narrow, after, 1, bias=False), nn.BatchNorm2d(after)
        self.stride = stride
        self.downsample: nn.Sequential | None = None
        if stride > 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after))

    def forward(self, grid_BCHW: torch.Tensor) -> torch.Tensor:
        new = F.relu(self.bn1(self.conv1(grid_BCHW)))
        new = F.relu(self.bn2(self.conv2(new)))
        if self.stride > 1:
            new, grid_BCHW = F.avg_pool2d(new, self.stride), F.avg_pool2d(grid_BCHW, self.stride)
        new = self.bn3(self.conv3(new))
        return F.relu(new + (grid_BCHW if self.downsample is None else self.downsample(grid_BCHW)))


class AttentionPool(nn.Module):
    """Attention pooling: the mean over the grid attends to itself and to all cells, with learned position
    embeddings.
    """

    def __init__(self, cells: int, channels: int, out: int) -> None:
        super().__init__()
        self.positional_embedding = nn.Parameter(torch.randn(cells + 1, channels) / channels**0.5)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(channels, channels) for _ in range(3))
        self.c_proj = nn.Linear(channels, out)
        self.heads = channels // HEAD

    def forward(self, grid_BCHW: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the pooled vector B×D, and each cell's separate output, B×cells×D (Zhou et al. 2022)."""
        cells_BPC = grid_BCHW.flatten(2).transpose(1, 2)
        cells_BPC = torch.cat([cells_BPC.mean(1, keepdim=True), cells_BPC], dim=1) + self.positional_embedding
        value_BPC = self.v_proj(cells_BPC)
        split = [
            x.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for x in (self.q_proj(cells_BPC[:, :1]), self.k_proj(cells_BPC), value_BPC)
        ]
        pooled_BC = F.scaled_dot_product_attention(*split).transpose(1, 2).flatten(1)
        return self.c_proj(pooled_BC), self.c_proj(value_BPC[:, 1:])


class ClipResNet(PreTrainedModel):
    """CLIP's ResNet with ``last_hidden_state`` B×cells×D (row by row) and ``pooler_output`` B×D, both projected."""

    config_class = ClipResNetConfig
    base_model_prefix = "clip_resnet"
    main_input_name = "pixel_values"

    def __init__(self, config: ClipResNetConfig) -> None:
        super().__init__(config)
        width, before = config.width, config.width
        self.conv1, self.bn1 = nn.Conv2d(3, width // 2, 3, 2, 1, bias=False), nn.BatchNorm2d(width // 2)
        self.conv2, self.bn2 = nn.Conv2d(width // 2, width // 2, 3, padding=1, bias=False), nn.BatchNorm2d(width // 2)
        self.conv3, self.bn3 = nn.Conv2d(width // 2, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        for number, blocks in enumerate(config.layers):
            narrow, stages = width * 2**number, []
            for block in range(blocks):
                stages.append(ClipBottleneck(before, narrow, 2 if number and not block else 1))
                before = narrow * EXPANSION
            setattr(self, f"layer{number + 1}", nn.Sequential(*stages))
        self.attnpool = AttentionPool((config.image_size // 32) ** 2, before, config.hidden_size)
        PreTrainedModel.post_init(self)

    def forward(self, pixel_values: torch.Tensor, **_: Any) -> BaseModelOutputWithPooling:
        grid: torch.Tensor = pixel_values
        for number in (1, 2, 3):
            conv, norm = getattr(self, f"conv{number}"), getattr(self, f"bn{number}")
            grid = F.relu(norm(conv(grid)))
        grid = F.avg_pool2d(grid, 2)
        for number in range(len(self.config.layers)):
            grid = getattr(self, f"layer{number + 1}")(grid)
        pooled_BD, cells_BPD = self.attnpool(grid)
        return BaseModelOutputWithPooling(last_hidden_state=cells_BPD, pooler_output=pooled_BD)


def clip_resnet_from_state(state: Mapping[str, torch.Tensor]) -> ClipResNet:
    """Builds CLIP's ResNet from weights named as in OpenAI's CLIP and open_clip (``visual.*``).

    Ignores the text tower. Infers the model's sizes from the weights' shapes. Raises `KeyError` for other models'
    weights, and `RuntimeError` if a weight is missing or has the wrong shape.
    """
    visual = {key.removeprefix("visual."): tensor.float() for key, tensor in state.items() if key.startswith("visual.")}
    stages = [
        1 + max(int(match[1]) for key in visual if (match := re.match(rf"layer{stage}\.(\d+)\.", key)))
        for stage in (1, 2, 3, 4)
        if f"layer{stage}.0.conv1.weight" in visual
    ]
    out, channels = visual["attnpool.c_proj.weight"].shape
    config = ClipResNetConfig(
        layers=stages,
        width=channels // (EXPANSION * 2 ** (len(stages) - 1)),
        image_size=32 * math.isqrt(len(visual["attnpool.positional_embedding"]) - 1),
        hidden_size=out,
    )
    model = ClipResNet(config)
    model.load_state_dict(visual)
    model.train(False)
    return model


AutoConfig.register("clip_resnet", ClipResNetConfig)
AutoModel.register(ClipResNetConfig, ClipResNet)
