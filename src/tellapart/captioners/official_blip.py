"""Builds a BLIP captioner from the weights that its authors published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from tellapart.captioners.blip import Blip
from tellapart.captioners.published_weights import State, load_weights
from tellapart.errors import TellapartError
from tellapart.models.hub_names import check_name
from tellapart.models.loading_errors import loading_errors
from tellapart.models.renamed_weights import renamed
from tellapart.models.saved import load_tokenizer

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
    try:
        config = blip_config(state)
    except KeyError as error:
        raise TellapartError(f"{path} lacks {error.args[0]}; expected a complete BLIP checkpoint") from None
    check_name(tokenizer, "tokenizer")
    with loading_errors(tokenizer, "BERT's tokenizer, such as bert-base-uncased"):
        words = load_tokenizer(tokenizer)
    if "[DEC]" not in words.get_vocab():  # BLIP adds a token that starts captions, and one for its text encoder
        words.add_special_tokens({"bos_token": "[DEC]"})
        words.add_tokens(["[ENC]"], special_tokens=True)
    if len(words) != config.text_config.vocab_size:
        raise TellapartError(
            f"{path} has {config.text_config.vocab_size} tokens, but {tokenizer} has {len(words)}; name the "
            f"tokenizer that the checkpoint was trained with: {path}?tokenizer=NAME"
        )
    config.text_config.bos_token_id = words.convert_tokens_to_ids("[DEC]")
    config.text_config.sep_token_id = config.text_config.eos_token_id = words.sep_token_id
    config.text_config.pad_token_id = words.pad_token_id
    model = transformers.BlipForConditionalGeneration(config)
    load_weights(model, renamed(state, BLIP_NAMES), path, BLIP_STRAY, f"tokenizer={tokenizer}")
    side = image_size or config.vision_config.image_size
    set_image_size(model, side)
    size = {"height": side, "width": side}
    captioner = Blip(model.eval(), words, transformers.BlipImageProcessorPil(size=size), str(path), prompt)
    captioner.chosen = {"prompt": prompt}
    return captioner


def blip_config(state: State) -> Any:
    """Infers a BLIP's sizes from the shapes of its weights. Its layer norms use 1e-6, whereas transformers defaults to
    1e-5.
    """
    patches, words = state["visual_encoder.patch_embed.proj.weight"], "text_decoder.bert.embeddings"
    width, patch = patches.shape[0], patches.shape[-1]
    side = int((state["visual_encoder.pos_embed"].shape[1] - 1) ** 0.5) * patch
    vocabulary, text_width = state[f"{words}.word_embeddings.weight"].shape
    layers = "visual_encoder.blocks", "text_decoder.bert.encoder.layer"
    vision_layers, text_layers = (
        len({key.removeprefix(f"{name}.").partition(".")[0] for key in state if key.startswith(f"{name}.")})
        for name in layers
    )
    vision = {
        "hidden_size": width,
        "intermediate_size": state["visual_encoder.blocks.0.mlp.fc1.weight"].shape[0],
        "num_hidden_layers": vision_layers,
        "num_attention_heads": max(1, width // HEAD_WIDTH),
        "image_size": side,
        "patch_size": patch,
        "layer_norm_eps": 1e-6,
    }
    text = {
        "vocab_size": vocabulary,
        "hidden_size": text_width,
        "encoder_hidden_size": width,
        "intermediate_size": state["text_decoder.bert.encoder.layer.0.intermediate.dense.weight"].shape[0],
        "num_hidden_layers": text_layers,
        "num_attention_heads": max(1, text_width // HEAD_WIDTH),
        "max_position_embeddings": state[f"{words}.position_embeddings.weight"].shape[0],
    }
    return transformers.BlipConfig(text_config=text, vision_config=vision)


def set_image_size(model: Any, side: int) -> None:
    """Interpolates the position embeddings for pictures of side×side pixels, as in BLIP."""
    embeddings, vision = model.vision_model.embeddings, model.config.vision_config
    cells_1PD = torch.empty(1, 1 + (side // vision.patch_size) ** 2, vision.hidden_size)
    places_1PD = embeddings.interpolate_pos_encoding(cells_1PD, side, side).detach()
    embeddings.position_embedding = torch.nn.Parameter(places_1PD)
    embeddings.image_size = vision.image_size = side
