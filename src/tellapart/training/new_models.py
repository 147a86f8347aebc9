"""New models from a recipe: the small captioners and scorers that are trained from scratch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from PIL import Image

from tellapart.captioners.clipcap import ClipCap, ClipCapConfig, ClipCapModel
from tellapart.captioners.recurrent import Recurrent, RecurrentConfig, RecurrentModel
from tellapart.errors import UsageError
from tellapart.models.tokens import word_tokenizer
from tellapart.models.vision import grid_resnet_config
from tellapart.recipe.models import NewCaptioner, NewRecurrent, NewScorer
from tellapart.scorers.base import Scorer


def build_scorer(new: NewScorer, texts: Iterable[str], name: str) -> Scorer:
    """A dual encoder of transformers with random weights: a ResNet and a CLIP text tower."""
    from transformers import (
        CLIPImageProcessorPil,
        CLIPTextConfig,
        VisionTextDualEncoderConfig,
        VisionTextDualEncoderModel,
    )

    tokenizer = word_tokenizer(texts, min_count=new.min_count, max_length=new.max_tokens)
    text = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=new.text_width,
        intermediate_size=4 * new.text_width,
        num_hidden_layers=new.text_layers,
        num_attention_heads=new.text_heads,
        max_position_embeddings=new.max_tokens,
        attention_dropout=new.dropout,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    vision = grid_resnet_config(new.width, new.depth, stem_pooling=new.stem_pooling)
    config = VisionTextDualEncoderConfig.from_vision_text_configs(vision, text, projection_dim=new.projection)
    size = {"height": new.image_size, "width": new.image_size}
    processor = CLIPImageProcessorPil(size=size, do_center_crop=False)
    return Scorer(VisionTextDualEncoderModel(config), tokenizer, processor, name)


def build_captioner(new: NewCaptioner, texts: Iterable[str], vision_of: Scorer, name: str) -> ClipCap:
    """A ClipCap with a small new GPT-2, behind the vision tower of ``vision_of`` (its weights are copied)."""
    from transformers import GPT2Config

    tokenizer = word_tokenizer(texts, min_count=new.min_count, max_length=new.max_tokens, sentences=new.sentences)
    text = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=new.max_tokens,
        n_embd=new.width,
        n_layer=new.layers,
        n_head=new.heads,
        resid_pdrop=new.dropout,
        embd_pdrop=new.dropout,
        attn_pdrop=new.dropout,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own, in one fused kernel
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    tower: Any = getattr(vision_of.model, "vision_model", None)
    if tower is None:
        raise UsageError(f"{vision_of.name} has no vision tower to copy; name another with captioner.new.vision")
    config = ClipCapConfig(
        vision_config=tower.config,
        text_config=text,
        visual=new.visual,
        mapper=new.mapper,
        prefix_length=new.prefix_length,
    )
    model = ClipCapModel(config)
    with torch.no_grad():
        model.vision.load_state_dict(tower.state_dict())
    made = ClipCap(model, tokenizer, vision_of.processor, name)
    # The frozen encoder, in eval mode: a probe in train mode would change the running statistics of a batch norm.
    if new.visual == "cells" and made.encoder.encode(made.pixels([Image.new("RGB", (64, 64))])).ndim != 3:
        raise UsageError(f"{vision_of.name} gives no features of cells; leave out captioner.new.visual")
    return made


def build_recurrent(
    new: NewRecurrent, texts: Iterable[str], name: str, vision: Any = None, processor: Any = None, width: int = 0
) -> Recurrent:
    """Paper 4's captioner with a new LSTM, behind a copy of ``vision``, or behind features of ``width`` numbers."""
    tokenizer = word_tokenizer(texts, min_count=new.min_count)
    if vision is not None:
        width = getattr(vision.config, "hidden_size", None) or vision.config.hidden_sizes[-1]
    config = RecurrentConfig(
        vision_config=None if vision is None else vision.config,
        visual_size=width,
        attention=new.attention,
        vocab_size=len(tokenizer),
        hidden_size=new.width,
        dropout=new.dropout,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = RecurrentModel(config)
    if vision is not None:
        with torch.no_grad():
            model.vision.load_state_dict(vision.state_dict())
    return Recurrent(model, tokenizer, processor, name)
