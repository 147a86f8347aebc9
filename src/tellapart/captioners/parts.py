"""Loads parts of captioners, vision encoders and language models, by name."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from tellapart.captioners.name_options import parse_options
from tellapart.captioners.new_clipcap import published_resnet
from tellapart.errors import UsageError
from tellapart.models.saved import checked_model_folder, load_processor, load_tokenizer, load_whole, loading_errors


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


def load_language_model(name: str) -> tuple[Any, Any]:
    """Loads any causal language model from transformers, in fp32, and its tokenizer.

    Raises the same errors as `load_captioner`.
    """
    where = checked_model_folder(name, "language model")
    with loading_errors(name, "a causal language model such as gpt2"):
        model = load_whole(transformers.AutoModelForCausalLM, where, dtype=torch.float32)
        return model, load_tokenizer(where)
