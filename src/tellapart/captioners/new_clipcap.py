"""Builds a ClipCap with a new mapper, between a vision encoder and a language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from tellapart.captioners.clipcap import FILES, ClipCap, ClipCapConfig, ClipCapModel
from tellapart.captioners.published_weights import plain_line, read_state
from tellapart.errors import TellapartError, UsageError
from tellapart.models.clip_resnet import ClipResNet, clip_resnet_from_state
from tellapart.models.names import check_name
from tellapart.models.saved import (
    check_whole,
    load_config,
    load_processor,
    load_reported,
    load_tokenizer,
    loading_errors,
)

CLIP, GPT2 = "openai/clip-vit-base-patch32", "gpt2"
OPEN_CLIP = "open_clip_model.safetensors"  # file name in the hub folders of open_clip and timm models
NO_VISION = "none"  # value of ``vision`` for a ClipCap without a vision encoder


def build_clipcap(
    vision: str,
    language_model: str,
    name: str,
    *,
    mapper: str = "mlp",
    prefix_length: int = 10,
    weights: bool = True,
    stop: str = "",
    **sizes: Any,
) -> ClipCap:
    """Builds a ClipCap with a new mapper between any CLIP or SigLIP encoder and any causal language model.

    The mapper's initialization is deterministic. ``weights``: whether to load the language model's weights; False
    creates a language model with random weights.
    """
    check_name(language_model, "language model")
    tower, visual, processor = None, FILES, None
    if vision != NO_VISION:
        with loading_errors(vision, "a CLIP or SigLIP with an image processor"):
            tower, visual, processor = vision_tower(vision)
    elif not sizes.get("feature_size"):
        raise UsageError("a new ClipCap requires a vision encoder, but vision is 'none'; set vision=NAME")
    with loading_errors(language_model, "a causal language model with its tokenizer, such as gpt2"):
        text_config, tokenizer = load_config(language_model), load_tokenizer(language_model)
        config = ClipCapConfig(
            vision_config=tower and tower.config,
            text_config=text_config,
            visual=visual,
            mapper=mapper,
            prefix_length=prefix_length,
            **sizes,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model: Any = ClipCapModel(config)
        if weights:
            model.language_model = transformers.AutoModelForCausalLM.from_pretrained(
                language_model, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
            )
    if tower is not None:
        model.vision.load_state_dict(tower.state_dict())
    captioner = ClipCap(model.eval(), tokenizer, processor, name)
    captioner.chosen = {"stop": stop} if stop else {}
    captioner.set_stop(stop)
    return captioner


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


def vision_tower(name: str) -> tuple[Any, str, Any]:
    """Returns a vision encoder with its weights, the output to use (`ClipCapConfig.visual`), and the processor."""
    if (resnet := published_resnet(name)) is not None:
        return resnet[0], "pooled", resnet[1]
    check_name(name, "CLIP or SigLIP")
    processor, config = load_processor(name), load_config(name)
    vision = getattr(config, "vision_config", config)
    family: Any = transformers.AutoModel
    visual = "pooled"
    if config.model_type in ("clip", "clip_vision_model"):
        vision.projection_dim = config.projection_dim  # from the full CLIP; the vision config may contain a default
        family, visual = transformers.CLIPVisionModelWithProjection, "projected"
    tower, report = load_reported(family, name, config=vision, dtype=torch.float32)
    # The text tower is not needed, so that its weights are not reported.
    check_whole(name, tower, {**report, "unexpected_keys": ()}, "; expected a complete CLIP or SigLIP")
    return tower, visual, processor
