"""Creates models with random weights: scorers, ClipCap, and paper 4's recurrent captioner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import transformers
from PIL import Image

from tellapart.captioners.clipcap import ClipCap, ClipCapConfig, ClipCapModel
from tellapart.captioners.recurrent import Recurrent, RecurrentConfig, RecurrentModel
from tellapart.errors import UsageError
from tellapart.models.grid_resnet import grid_resnet_config
from tellapart.models.loading_errors import loading_errors
from tellapart.models.saved import checked_model_folder, load_tokenizer, load_whole
from tellapart.models.vision import width_of
from tellapart.models.word_tokenizer import word_tokenizer
from tellapart.recipe.schema import NewCaptioner, NewRecurrent, NewScorer
from tellapart.scorers import Scorer


def build_scorer(new: NewScorer, texts: Iterable[str], name: str) -> Scorer:
    """Creates a transformers dual encoder with random weights, which consists of a ResNet and a CLIP text tower."""
    tokenizer = word_tokenizer(texts, min_count=new.min_count, max_length=new.max_tokens)
    text = transformers.CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=new.text_width,
        intermediate_size=4 * new.text_width,
        num_hidden_layers=new.text_layers,
        num_attention_heads=new.text_heads,
        max_position_embeddings=new.max_tokens,
        attention_dropout=new.dropout,
        **special_ids(tokenizer),
    )
    vision = grid_resnet_config(new.width, new.depth, stem_pooling=new.stem_pooling)
    config = transformers.VisionTextDualEncoderConfig.from_vision_text_configs(
        vision, text, projection_dim=new.projection
    )
    size = {"height": new.image_size, "width": new.image_size}
    processor = transformers.CLIPImageProcessorPil(size=size, do_center_crop=False)
    return Scorer(transformers.VisionTextDualEncoderModel(config), tokenizer, processor, name)


def special_ids(tokenizer: Any) -> dict[str, Any]:
    """Returns the ids of the special tokens by their names in a configuration."""
    return {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}


def build_captioner(new: NewCaptioner, texts: Iterable[str], tower: Any, processor: Any, name: str) -> ClipCap:
    """Creates a ClipCap from a copy of the vision encoder ``tower`` and a new GPT-2 or an existing language model."""
    config: Any
    if new.language_model is not None:
        language_model, tokenizer = load_language_model(new.language_model)
        config = language_model.config
    else:
        language_model, tokenizer = (
            None,
            word_tokenizer(texts, min_count=new.min_count, max_length=new.max_tokens, sentences=new.sentences),
        )
        config = small_gpt2(new, tokenizer)
    model = ClipCapModel(
        ClipCapConfig(
            vision_config=tower.config,
            text_config=config,
            visual=new.visual,
            grid=new.grid,
            mapper=new.mapper,
            prefix_length=new.prefix_length,
        )
    )
    with torch.no_grad():
        model.vision.load_state_dict(tower.state_dict())
        if language_model is not None:
            model.language_model.load_state_dict(language_model.state_dict())
    captioner = ClipCap(model, tokenizer, processor, name)
    # Probe the frozen encoder in eval mode, because train mode would change the running statistics of batch norms.
    if new.visual == "cells" and captioner.encoder.encode(captioner.pixels([Image.new("RGB", (64, 64))])).ndim != 3:
        raise UsageError(
            f"captioner.new.visual = 'cells' requires grid features, which {new.vision} does not return; remove "
            "captioner.new.visual"
        )
    return captioner


def load_language_model(name: str) -> tuple[Any, Any]:
    """Loads any causal language model from transformers, in fp32, and its tokenizer.

    Raises the same errors as `load_captioner`.
    """
    where = checked_model_folder(name, "language model")
    with loading_errors(name, "a causal language model such as gpt2"):
        model = load_whole(transformers.AutoModelForCausalLM, where, dtype=torch.float32)
        return model, load_tokenizer(where)


def small_gpt2(new: NewCaptioner, tokenizer: Any) -> Any:
    """Returns the configuration for a new word-level GPT-2."""
    return transformers.GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=new.max_tokens,
        n_embd=new.width,
        n_layer=new.layers,
        n_head=new.heads,
        resid_pdrop=new.dropout,
        embd_pdrop=new.dropout,
        attn_pdrop=new.dropout,
        activation_function="gelu_pytorch_tanh",  # the same function as in GPT-2, but in one fused kernel
        **special_ids(tokenizer),
    )


def build_recurrent(
    new: NewRecurrent, texts: Iterable[str], name: str, vision: Any = None, processor: Any = None, width: int = 0
) -> Recurrent:
    """Creates paper 4's captioner: a new LSTM on top of a copy of ``vision``, or on features of dimension ``width``."""
    tokenizer = word_tokenizer(texts, min_count=new.min_count)
    if vision is not None:
        width = width_of(vision.config)
    config = RecurrentConfig(
        vision_config=None if vision is None else vision.config,
        visual_size=width,
        attention=new.attention,
        vocab_size=len(tokenizer),
        hidden_size=new.width,
        dropout=new.dropout,
        **special_ids(tokenizer),
    )
    model = RecurrentModel(config)
    if vision is not None:
        with torch.no_grad():
            model.vision.load_state_dict(vision.state_dict())
    return Recurrent(model, tokenizer, processor, name)
