"""EfficientNet-Lite, a small convolutional vision encoder (Tan and Le 2019; the "Lite" release of 2020).

The model uses inverted bottlenecks without squeeze-and-excitation, ReLU6, TensorFlow's "same" padding, and a stem and
head of fixed width. Transformers has only EfficientNet with squeeze-and-excitation. Like
`models.grid_resnet.GridResNet`, the model returns a pooled vector and one vector per grid cell, so it can replace any
CLIP vision model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutputWithPooling

from tellapart.models.renamed_weights import renamed

# (blocks, kernel, stride of the first block, expansion, channels) for each stage, before scaling.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM = 32
# Number of pictures per pass on a CPU without gradients. Their feature maps fit into the cache, which saves a third of
# the time.
AT_ONCE = 4


@strict
class EfficientNetLiteConfig(PreTrainedConfig):
    """Configuration of an EfficientNet-Lite.

    ``width`` and ``depth``: scaling factors for channels and blocks. ``grid``: number of cells per side of
    ``last_hidden_state``, to which the last feature map is pooled; 0 keeps the map unpooled (7×7 at 224 pixels).
    """

    model_type = "efficientnet_lite"

    width: float = 1.0
    depth: float = 1.0
    image_size: int = 224
    hidden_size: int = 1280
    grid: int = 4


PUBLISHED_SIZES: dict[int, dict[str, Any]] = {0: {}, 2: {"width": 1.1, "depth": 1.2, "image_size": 260}}


def scaled_channels(channels: int, width: float) -> int:
    """Returns ``channels`` times ``width``, rounded to a multiple of 8, but never reduced by more than 10%."""
    wide = channels * width
    near = max(8, int(wide + 4) // 8 * 8)
    return near + 8 if near < 0.9 * wide else near


def blocks_of(config: EfficientNetLiteConfig) -> Iterator[tuple[int, int, int, int, int]]:
    """Yields (in channels, out channels, kernel, stride, expansion) for each block.

    The depth of the first and of the last stage is not scaled.
    """
    before = STEM
    for number, (blocks, kernel, stride, expansion, channels) in enumerate(STAGES):
        after = scaled_channels(channels, config.width)
        for _ in range(math.ceil(blocks * config.depth) if 0 < number < len(STAGES) - 1 else blocks):
            yield before, after, kernel, stride, expansion
            before, stride = after, 1


class ConvNorm(nn.Module):
    """A convolution with TensorFlow's "same" padding (the odd pixel is added on the right and at the bottom), batch
    norm, and ReLU6.
    """

    def __init__(
        self, before: int, after: int, kernel: int = 1, stride: int = 1, groups: int = 1, *, clipped: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(after, eps=1e-3, momentum=0.01)
        self.kernel, self.stride, self.clipped = kernel, stride, clipped

    def forward(self, grid_BCHW: torch.Tensor) -> torch.Tensor:
        if self.kernel > 1:
            height, width = (
                max((math.ceil(side / self.stride) - 1) * self.stride + self.kernel - side, 0)
                for side in grid_BCHW.shape[-2:]
            )
            grid_BCHW = F.pad(grid_BCHW, (width // 2, width - width // 2, height // 2, height - height // 2))
        normed = self.norm(self.conv(grid_BCHW)) if self.training else self.folded(grid_BCHW)
        return F.relu6(normed) if self.clipped else normed

    def folded(self, grid_BCHW: torch.Tensor) -> torch.Tensor:
        """Folds the frozen norm into the convolution's weights, which takes one pass over the feature map instead of
        two.
        """
        conv, norm = self.conv, self.norm
        assert norm.running_mean is not None and norm.running_var is not None
        factor_C = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        weight, bias_C = conv.weight * factor_C[:, None, None, None], norm.bias - norm.running_mean * factor_C
        return F.conv2d(grid_BCHW, weight, bias_C, conv.stride, groups=conv.groups)


class Bottleneck(nn.Module):
    """Inverted bottleneck: expansion, depthwise convolution, projection, and a shortcut if the shapes match."""

    def __init__(self, before: int, after: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        self.expand = ConvNorm(before, wide) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm(wide, wide, kernel, stride, groups=wide)
        self.project = ConvNorm(wide, after, clipped=False)
        self.shortcut = stride == 1 and before == after

    def forward(self, grid_BCHW: torch.Tensor) -> torch.Tensor:
        new: torch.Tensor = self.project(self.depthwise(self.expand(grid_BCHW)))
        return new + grid_BCHW if self.shortcut else new


class EfficientNetLite(PreTrainedModel):
    """EfficientNet-Lite with ``last_hidden_state`` B×cells×D (row by row) and ``pooler_output`` B×D, the mean cell."""

    config_class = EfficientNetLiteConfig
    base_model_prefix = "efficientnet_lite"
    main_input_name = "pixel_values"

    def __init__(self, config: EfficientNetLiteConfig) -> None:
        super().__init__(config)
        blocks = list(blocks_of(config))
        self.stem = ConvNorm(3, STEM, 3, 2)
        self.blocks = nn.ModuleList(Bottleneck(*block) for block in blocks)
        self.head = ConvNorm(blocks[-1][1], config.hidden_size)
        PreTrainedModel.post_init(self)

    def forward(self, pixel_values: torch.Tensor, **_: Any) -> BaseModelOutputWithPooling:
        whole = torch.is_grad_enabled() or self.training or pixel_values.device.type != "cpu"
        parts = [self.features(part) for part in pixel_values.split(len(pixel_values) or 1 if whole else AT_ONCE)]
        cells_BPD, pooled_BD = (torch.cat(outputs) for outputs in zip(*parts, strict=True))
        return BaseModelOutputWithPooling(cells_BPD, pooled_BD)

    def features(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the cells' features, B×cells×D, and the mean feature before grid pooling, B×D."""
        grid: torch.Tensor = self.stem(pixel_values.contiguous(memory_format=torch.channels_last))
        for block in self.blocks:
            grid = block(grid)
        grid = self.head(grid)
        pooled_BD = grid.mean((2, 3))
        if self.config.grid:
            grid = F.adaptive_avg_pool2d(grid, self.config.grid)
        return grid.flatten(2).transpose(1, 2), pooled_BD


PUBLISHED = (
    (r"^_conv_stem", "stem.conv"),
    (r"^_bn0", "stem.norm"),
    (r"^_conv_head", "head.conv"),
    (r"^_bn1", "head.norm"),
    (r"^_blocks\.", "blocks."),
    (r"\._(expand|depthwise|project)_conv", r".\1.conv"),
    (r"\._bn0", ".expand.norm"),
    (r"\._bn1", ".depthwise.norm"),
    (r"\._bn2", ".project.norm"),
)  # maps names in the published PyTorch files to ours


def from_published(state: Mapping[str, torch.Tensor], scale: int) -> EfficientNetLite:
    """Builds Lite ``scale`` (0 or 2) from a published PyTorch state dict, without the classifier.

    Raises `RuntimeError` if a weight is missing, is unexpected, or has the wrong shape.
    """
    model = EfficientNetLite(EfficientNetLiteConfig(**PUBLISHED_SIZES[scale]))
    model.load_state_dict(renamed({key: x for key, x in state.items() if not key.startswith("_fc.")}, PUBLISHED))
    model.train(False)
    return model


AutoConfig.register("efficientnet_lite", EfficientNetLiteConfig)
AutoModel.register(EfficientNetLiteConfig, EfficientNetLite)
