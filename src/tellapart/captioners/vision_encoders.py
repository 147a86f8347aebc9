"""Loads vision encoders by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from tellapart.captioners.name_options import parse_options
from tellapart.captioners.published_weights import plain_line, read_state
from tellapart.errors import TellapartError, UsageError
from tellapart.models.clip_resnet import ClipResNet, clip_resnet_from_state
from tellapart.models.loading_errors import loading_errors
from tellapart.models.saved import checked_model_folder, load_processor

OPEN_CLIP = "open_clip_model.safetensors"  # file name in the hub folders of open_clip and timm models


def load_vision(name: str) -> tuple[Any, Any]:
    """Loads a vision encoder and its processor.

    The encoder can be a transformers model, a scorer's vision encoder, or CLIP's ResNet from a weights file.
    ``NAME?pixels=192`` makes the processor resize pictures to 192 × 192 pixels; a CNN accepts any size. Raises the same
    errors as `load_captioner`.
    """

    bare, _, written = name.partition("?")
    options = parse_options(written, {"pixels": int}, bare)
    if (resnet := published_resnet(bare)) is not None:
        if "pixels" in options:
            raise UsageError(f"{name}: CLIP's ResNet requires pictures of one size; remove ?pixels")
        return resnet
    where = checked_model_folder(bare, "scorer")
    with loading_errors(name, "a vision encoder such as microsoft/resnet-101, or a scorer"):
        model = transformers.AutoModel.from_pretrained(
            where, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
        )
        processor = load_processor(where)
    vision = getattr(model, "vision_model", model)
    if (side := options.get("pixels")) is not None:
        processor.size, processor.do_center_crop = {"height": side, "width": side}, False
        if hasattr(vision.config, "image_size"):
            vision.config.image_size = side
    return vision, processor


def published_resnet(name: str) -> tuple[ClipResNet, Any] | None:
    """Loads CLIP's ResNet and its processor from a file of CLIP weights or an open_clip folder.

    Returns None for all other names. Raises `TellapartError` if the file does not contain a CLIP ResNet.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        path /= OPEN_CLIP
    if path.suffix not in (".pt", ".pth", ".safetensors") or not path.is_file():
        return None
    try:
        model = clip_resnet_from_state(read_state(path))
    except (KeyError, RuntimeError) as error:
        raise TellapartError(
            f"{path} does not contain a CLIP ResNet ({plain_line(error)}); expected weights under OpenAI's names "
            "(visual.conv1.weight, …, visual.attnpool.c_proj.weight)"
        ) from None
    side = model.config.image_size
    crop = {"height": side, "width": side}
    return model, transformers.CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size=crop)
