"""Captioners of ``benchmarks caption``: layouts and configurations of published models, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PROMPT = "a photo of"
WORDS = tuple(f"word{number}" for number in range(1000))
IMPOSSIBLE = -1e4  # added to the logits of tokens that must never be generated
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }} {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|> <|image_pad|> <|vision_end|> {% else %}{{ part['text'] }} "
    "{% endif %}{% endfor %}<|im_end|> {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)


def blip_base(folder: Path) -> Path:
    """Writes a model with the configuration, processor and vocabulary size of Salesforce/blip-image-captioning-base."""
    import torch
    from transformers import (
        BertTokenizer,
        BlipConfig,
        BlipForConditionalGeneration,
        BlipImageProcessorPil,
        BlipProcessor,
    )

    config = BlipConfig(vision_config={"image_size": 384})
    text: Any = config.text_config
    size = text.vocab_size
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PROMPT.split()]
    words = [*special, *(f"word{number}" for number in range(size - len(special) - 2)), "[DEC]", "[ENC]"]
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    tokenizer = BertTokenizer(str(folder / "vocab.txt"))
    text.pad_token_id, text.sep_token_id, text.eos_token_id, text.bos_token_id = 0, 3, 3, size - 2
    torch.manual_seed(0)
    model = BlipForConditionalGeneration(config)
    with torch.no_grad():
        bias = model.text_decoder.cls.predictions.decoder.bias
        bias[:5], bias[-2:] = IMPOSSIBLE, IMPOSSIBLE
    model.save_pretrained(folder)
    pictures = BlipImageProcessorPil(size={"height": 384, "width": 384})
    BlipProcessor(pictures, tokenizer).save_pretrained(folder)
    return folder


def tiny_qwen2_vl(folder: Path) -> Path:
    """Writes a small model with Qwen2-VL's layout: native resolutions, 3D rotary positions, grouped-query attention."""
    import torch
    from transformers import AutoModelForImageTextToText, Qwen2VLConfig, Qwen2VLImageProcessorPil

    marks = ("<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    tokenizer = word_tokenizer(marks)
    ids = {
        f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{mark}|>")
        for name, mark in (("image", "image_pad"), ("video", "video_pad"), ("vision_start", "vision_start"))
    }
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 256,
            "intermediate_size": 1024,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]},
            "bos_token_id": tokenizer.eos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={"depth": 4, "embed_dim": 128, "hidden_size": 256, "num_heads": 4},
        tie_word_embeddings=False,
        **ids,
    )
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config)
    with torch.no_grad():  # tokens that are no words score 0, and of a thousand words many score more
        model.lm_head.weight[: len(tokenizer) - len(WORDS)] = 0.0
        model.lm_head.weight[len(tokenizer) - len(WORDS) :].mul_(20.0)
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    pictures = Qwen2VLImageProcessorPil(size={"shortest_edge": 56 * 56, "longest_edge": 256 * 28 * 28})
    tokenizer.save_pretrained(folder)
    pictures.save_pretrained(folder)
    return folder


def word_tokenizer(marks: Sequence[str]) -> Any:
    """Whole words between blanks, with these special tokens and a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"unk_token": "<unk>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    words = [*special.values(), *marks, "user", "assistant", *PROMPT.split(), *WORDS]
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, **special, extra_special_tokens=list(marks))
    tokenizer.chat_template = CHAT
    return tokenizer


MODELS: dict[str, Callable[[Path], Path]] = {"BLIP-base": blip_base, "tiny Qwen2-VL": tiny_qwen2_vl}
