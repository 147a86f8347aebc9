"""A tiny chat model, and one that sees pictures: random weights, saved in their real layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    CLIPImageProcessorPil,
    LlamaConfig,
    LlavaConfig,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SPECIAL = ("<unk>", "<s>", "</s>", "<pad>", "<image>", "<user>", "<system>", "<assistant>")
TEXT = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
PARTS = (
    "{% for m in messages %}<{{ m['role'] }}>{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def tokenizer(template: str) -> PreTrainedTokenizerFast:
    """Bytes as tokens, so that any text can be asked."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate([*SPECIAL, *alphabet])}
    made = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    names: dict[str, Any] = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    words = PreTrainedTokenizerFast(tokenizer_object=made, **names, additional_special_tokens=list(SPECIAL[4:]))
    words.chat_template = template
    return words


def decoder(words: PreTrainedTokenizerFast) -> LlamaConfig:
    return LlamaConfig(
        **SMALL, num_key_value_heads=2, vocab_size=len(words), max_position_embeddings=2048,
        bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id,
    )  # fmt: skip


def language_model(folder: Path, template: str = TEXT) -> Path:
    words = tokenizer(template)
    return _save(folder, AutoModelForCausalLM, decoder(words), words)


def seeing_model(folder: Path) -> Path:
    words = tokenizer(PARTS)
    pictures = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    processor = LlavaProcessor(
        pictures, words, patch_size=16, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=PARTS,
    )  # fmt: skip
    vision = {"model_type": "clip_vision_model", **SMALL, "image_size": 32, "patch_size": 16, "projection_dim": 8}
    image = words.convert_tokens_to_ids("<image>")
    config = LlavaConfig(vision_config=vision, text_config=decoder(words), image_token_index=image)
    return _save(folder, AutoModelForImageTextToText, config, processor)


def _save(folder: Path, kind: Any, config: Any, processor: Any) -> Path:
    torch.manual_seed(0)
    model = kind.from_config(config)
    with torch.no_grad():  # as they come, random weights say one word whatever they are asked
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.4)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
