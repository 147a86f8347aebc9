"""Builds a ClipCap with a new mapper, between a vision encoder and a language model."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from tellapart.captioners.clipcap import FILES, ClipCap, ClipCapConfig, ClipCapModel
from tellapart.captioners.name_options import parse_options
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry
from tellapart.captioners.vision_encoders import published_resnet
from tellapart.errors import UsageError
from tellapart.models.hub_names import check_name
from tellapart.models.loading_errors import loading_errors
from tellapart.models.saved import check_whole, load_config, load_processor, load_reported, load_tokenizer

CLIP, GPT2 = "openai/clip-vit-base-patch32", "gpt2"
NO_VISION = "none"  # value of ``vision`` for a ClipCap without a vision encoder
PARTS = {"vision": str, "language_model": str, "stop": str}  # options of a name that specify a ClipCap's parts


def open_clipcap(name: str, written: str) -> ClipCap:
    """Builds the captioner ``clipcap?vision=NAME&language_model=NAME``. ``written``: its options.

    Raises `UsageError` for unknown options.
    """
    parts = {"vision": CLIP, "language_model": GPT2, "mapper": "mlp"}
    parts |= parse_options(written, {**PARTS, "mapper": str, "prefix_length": int}, name)
    if parts["mapper"] not in ("mlp", "transformer"):
        raise UsageError(f"clipcap: mapper must be 'mlp' or 'transformer'; got '{parts['mapper']}'")
    return build_clipcap(**parts, name=name)  # type: ignore[arg-type]


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
    # The text tower is not needed, so its weights are not reported.
    check_whole(name, tower, {**report, "unexpected_keys": ()}, "; expected a complete CLIP or SigLIP")
    return tower, visual, processor


CAPTIONERS.register(
    CaptionerEntry(
        name="new_clipcap",
        factory=open_clipcap,
        help="A ClipCap with a new mapper.",
        takes="clipcap",
    )
)
