"""Builds a BLIP captioner from the weights that its authors published."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers

from tellapart.captioners.blip import Blip
from tellapart.captioners.published_weights import State, load_weights
from tellapart.errors import TellapartError
from tellapart.models.names import check_name
from tellapart.models.saved import loading_errors

BERT = "bert-base-uncased"
HEAD_WIDTH = 64  # width of every attention head in BLIP's vision transformers
BLIP_NAMES = (  # maps the vision transformer's names to transformers' names; the text decoder's names are the same
    (r"^visual_encoder\.cls_token$", "vision_model.embeddings.class_embedding"),
    (r"^visual_encoder\.pos_embed$", "vision_model.embeddings.position_embedding"),
    (r"^visual_encoder\.patch_embed\.proj\.", "vision_model.embeddings.patch_embedding."),
    (r"^visual_encoder\.norm\.", "vision_model.post_layernorm."),
    (r"^visual_encoder\.blocks\.(\d+)\.norm([12])\.", r"vision_model.encoder.layers.\1.layer_norm\2."),
    (r"^visual_encoder\.blocks\.(\d+)\.attn\.qkv\.", r"vision_model.encoder.layers.\1.self_attn.qkv."),
    (r"^visual_encoder\.blocks\.(\d+)\.attn\.proj\.", r"vision_model.encoder.layers.\1.self_attn.projection."),
    (r"^visual_encoder\.blocks\.(\d+)\.mlp\.", r"vision_model.encoder.layers.\1.mlp."),
)
# Keys of pre-training checkpoints that retrieval and matching need but captioning does not.
BLIP_STRAY = (
    r"(text_encoder|vision_proj|text_proj|itm_head|visual_encoder_m|text_encoder_m|vision_proj_m|text_proj_m)\."
    r"|(image_queue|text_queue|queue_ptr|ptr_queue|temp)$|text_decoder\.bert\.embeddings\.position_ids$"
)


def blip_from_state(
    state: State, path: Path, tokenizer: str = BERT, image_size: int | None = None, prompt: str = "a picture of "
) -> Blip:
    """Builds a BLIP captioner from its weights.

    ``image_size``: side of the input in pixels, if it should differ from the checkpoint's; the position embeddings are
    then interpolated.
    """
    state = dict(state)
    try:
        config = blip_config(state, image_size)
    except KeyError as error:
        raise TellapartError(f"{path} lacks {error.args[0]}; expected a complete BLIP checkpoint") from None
    place = "visual_encoder.pos_embed"
    vision = config.vision_config
    state[place] = resize_position_embeddings(state[place], vision.image_size // vision.patch_size)
    check_name(tokenizer, "tokenizer")
    with loading_errors(tokenizer, "BERT's tokenizer, such as bert-base-uncased"):
        words = transformers.AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=False)
    add_blip_tokens(words)
    if len(words) != config.text_config.vocab_size:
        raise TellapartError(
            f"{path} has {config.text_config.vocab_size} tokens, but {tokenizer} has {len(words)}; name the "
            f"tokenizer that the checkpoint was trained with: {path}?tokenizer=NAME"
        )
    ids = {"bos": words.convert_tokens_to_ids("[DEC]"), "sep": words.sep_token_id, "pad": words.pad_token_id}
    for name, value in ids.items():
        setattr(config.text_config, f"{name}_token_id", value)
    config.text_config.eos_token_id = words.sep_token_id
    model = transformers.BlipForConditionalGeneration(config)
    load_weights(model, blip_names(state), path, BLIP_STRAY, f"tokenizer={tokenizer}")
    size = {"height": vision.image_size, "width": vision.image_size}
    captioner = Blip(model.eval(), words, transformers.BlipImageProcessorPil(size=size), str(path), prompt)
    captioner.chosen = {"prompt": prompt}
    return captioner


def blip_names(state: State) -> State:
    """Renames the weights to transformers' names. The text decoder's weights already have these names."""
    renamed: State = {}
    for key, tensor in state.items():
        for old, new in BLIP_NAMES:
            key = re.sub(old, new, key)
        renamed[key] = tensor
    return renamed


def blip_config(state: State, image_size: int | None) -> Any:
    """Infers a BLIP's sizes from the shapes of its weights. Its layer norms use 1e-6, whereas transformers defaults to
    1e-5.
    """
    patches, words = state["visual_encoder.patch_embed.proj.weight"], "text_decoder.bert.embeddings"
    width, patch = patches.shape[0], patches.shape[-1]
    side = int((state["visual_encoder.pos_embed"].shape[1] - 1) ** 0.5) * patch
    vocabulary, text_width = state[f"{words}.word_embeddings.weight"].shape
    vision = {
        "hidden_size": width,
        "intermediate_size": state["visual_encoder.blocks.0.mlp.fc1.weight"].shape[0],
        "num_hidden_layers": count_layers(state, r"visual_encoder\.blocks\.(\d+)\."),
        "num_attention_heads": max(1, width // HEAD_WIDTH),
        "image_size": image_size or side,
        "patch_size": patch,
        "layer_norm_eps": 1e-6,
    }
    text = {
        "vocab_size": vocabulary,
        "hidden_size": text_width,
        "encoder_hidden_size": width,
        "intermediate_size": state["text_decoder.bert.encoder.layer.0.intermediate.dense.weight"].shape[0],
        "num_hidden_layers": count_layers(state, r"text_decoder\.bert\.encoder\.layer\.(\d+)\."),
        "num_attention_heads": max(1, text_width // HEAD_WIDTH),
        "max_position_embeddings": state[f"{words}.position_embeddings.weight"].shape[0],
    }
    return transformers.BlipConfig(text_config=text, vision_config=vision)


def count_layers(state: State, pattern: str) -> int:
    return len({match[1] for key in state if (match := re.match(pattern, key))})


def resize_position_embeddings(places_1PD: torch.Tensor, side: int) -> torch.Tensor:
    """Interpolates position embeddings to side×side patches, as in BLIP: bicubic, with an unchanged class token."""
    old = int((places_1PD.shape[1] - 1) ** 0.5)
    if old == side:
        return places_1PD
    grid = places_1PD[:, 1:].unflatten(1, (old, old)).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=(side, side), mode="bicubic", align_corners=False)
    return torch.cat([places_1PD[:, :1], grid.permute(0, 2, 3, 1).flatten(1, 2)], dim=1)


def add_blip_tokens(words: Any) -> None:
    """Adds BLIP's two extra tokens to BERT's tokenizer: one that starts captions, and one that only BLIP's text encoder
    uses.
    """
    if "[DEC]" not in words.get_vocab():
        words.add_special_tokens({"bos_token": "[DEC]"})
        words.add_tokens(["[ENC]"], special_tokens=True)
