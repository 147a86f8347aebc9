"""Builds captioners and a scorer of realistic size in code, with real configurations and random weights.

Only the token ids differ from those of the published models: the end token is the last token in the vocabulary.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tellapart.errors import UsageError, nearest

if TYPE_CHECKING:
    from tellapart.captioners.captioner import Captioner
    from tellapart.scorers.base import Scorer

MODELS = ("clipcap-gpt2", "blip-base", "qwen2-vl-2b")
END, WORD = "<end>", "w{}"
CLIP_VISION = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
CLIP_VISION |= {"patch_size": 32, "image_size": 224, "projection_dim": 512}


def full_size_captioner(name: str) -> Captioner:
    """Builds one of `MODELS`. Raises `UsageError` for any other name."""
    makers = dict(zip(MODELS, (clipcap_gpt2, blip_base, qwen2_vl_2b), strict=True))
    if name not in makers:
        raise UsageError(f"unknown full-size model '{name}'{nearest(name, MODELS)}")
    return makers[name]()


def clip_scorer() -> Scorer:
    """Builds a scorer of CLIP ViT-B/32's size."""
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel

    from tellapart.scorers.base import Scorer

    tokenizer = numbered_words(49408, begin="<start>")
    text = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id}
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=CLIP_VISION, projection_dim=512))
    return Scorer(model.requires_grad_(False).eval(), tokenizer, CLIPImageProcessorPil(), "CLIP ViT-B/32")


def clipcap_gpt2() -> Captioner:
    """Builds paper 3's captioner: CLIP ViT-B/32, an MLP with ten positions, and GPT-2."""
    from transformers import CLIPImageProcessorPil, GPT2Config

    from tellapart.captioners.clipcap import ClipCap, ClipCapConfig, ClipCapModel

    vision = {"model_type": "clip_vision_model", **CLIP_VISION}
    config = ClipCapConfig(vision_config=vision, text_config=GPT2Config(), prefix_length=10)
    tokenizer = numbered_words(config.text_config.vocab_size)
    return ClipCap(ClipCapModel(config), tokenizer, CLIPImageProcessorPil(), "clipcap-gpt2")


def blip_base() -> Captioner:
    """Builds Salesforce/blip-image-captioning-base, for pictures of 384 pixels."""
    from transformers import BlipConfig, BlipForConditionalGeneration, BlipImageProcessorPil

    from tellapart.captioners.blip import Blip

    tokenizer = numbered_words(30524)
    ends = {"bos_token_id": 0, "sep_token_id": tokenizer.eos_token_id, "eos_token_id": tokenizer.eos_token_id}
    text = {"vocab_size": 30524, "num_attention_heads": 12, "pad_token_id": tokenizer.pad_token_id, **ends}
    vision = {"image_size": 384, "num_attention_heads": 12}
    model = BlipForConditionalGeneration(BlipConfig(text_config=text, vision_config=vision))
    return Blip(model, tokenizer, BlipImageProcessorPil(size={"height": 384, "width": 384}), "blip-base")


def qwen2_vl_2b() -> Captioner:
    """Builds Qwen/Qwen2-VL-2B-Instruct with bf16 weights and LoRA of rank 32 on its language model."""
    import torch
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessorPil

    from tellapart.captioners.lora import add_lora
    from tellapart.captioners.processors import whole_processor
    from tellapart.captioners.transformers import Hf

    places = ("<|vision_start|>", "<|image_pad|>", "<|video_pad|>", "<|vision_end|>")
    tokenizer = numbered_words(151936, special=places)
    tokenizer.chat_template = (
        "{% for message in messages %}{% for part in message['content'] %}{% if part['type'] == 'image' %}"
        "<|vision_start|> <|image_pad|> <|vision_end|> {% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
    )
    number = tokenizer.convert_tokens_to_ids
    text = {
        "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
        "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id,
    }  # fmt: skip
    config = Qwen2VLConfig(
        text_config=text,
        vision_config={"hidden_size": 1536},
        vision_start_token_id=number(places[0]),
        image_token_id=number(places[1]),
        video_token_id=number(places[2]),
        tie_word_embeddings=True,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = Qwen2VLForConditionalGeneration(config)
    finally:
        torch.set_default_dtype(before)
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        Qwen2VLImageProcessorPil().save_pretrained(folder)
        processor = whole_processor(folder, config)
    captioner = Hf(model, processor.tokenizer, processor, "qwen2-vl-2b")
    model.requires_grad_(False)
    add_lora(captioner, ["language_model"])
    return captioner


def numbered_words(size: int, begin: str | None = None, special: Sequence[str] = ()) -> Any:
    """Returns a tokenizer for ``size`` synthetic words. The last word is the end token."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    named = [*special, *([begin] if begin else []), END]
    vocabulary = {WORD.format(number): number for number in range(size - len(named))}
    vocabulary |= {token: len(vocabulary) + place for place, token in enumerate(named)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=WORD.format(0)))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if begin:
        around = [(token, vocabulary[token]) for token in (begin, END)]
        made.post_processor = processors.TemplateProcessing(single=f"{begin} $A {END}", special_tokens=around)
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token=WORD.format(0),
        bos_token=begin or END,
        eos_token=END,
        pad_token=END if begin else WORD.format(1),
        extra_special_tokens=list(special),
        model_max_length=77 if begin else 1024,
    )
