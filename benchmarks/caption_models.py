"""The captioners for ``benchmarks caption``. They have the layouts and configurations of published models, and random
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROMPT = "a photo of"
IMPOSSIBLE = -1e4  # added to the logits of tokens that must never be generated
QWEN_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }} {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|> <|image_pad|> <|vision_end|> {% else %}{{ part['text'] }} "
    "{% endif %}{% endfor %}<|im_end|> {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)
QWEN_MARKS = ("<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
SMOLVLM_CHAT = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}: "
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}"
    "{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
SMOLVLM_PLACES = tuple(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))
SMOLVLM_MARKS = ("<|im_start|>", "<image>", "<fake_token_around_image>", "<global-img>", *SMOLVLM_PLACES)

QWEN_TEXT: dict[str, Any] = {  # Qwen2-0.5B, and the shares of rotary pairs of Qwen2-VL-2B
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]},
}
# Has the size of ViT-B, because Qwen2-VL's tower (32 layers of width 1280) would be larger than this language model.
QWEN_VISION = {"depth": 12, "embed_dim": 768, "num_heads": 12, "hidden_size": 896}
SMOLVLM_TEXT: dict[str, Any] = {  # HuggingFaceTB/SmolVLM-256M-Instruct
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49280,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
}
SMOLVLM_VISION = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 512,
    "patch_size": 16,
}
TILE = 512


@dataclass(frozen=True)
class Model:
    """One of the benchmark's models.

    chats: whether it is a vision-language model that answers a chat. If not, it is a captioner that continues a prompt.
    pictures: number of photos.
    short: number of photos in the default run. If 0, the model is measured only with ``--full``.
    """

    write: Callable[[Path], Path]
    chats: bool
    pictures: int
    short: int


def blip(folder: Path, text: Mapping[str, Any] | None = None, vision: Mapping[str, Any] | None = None) -> Path:
    """Writes a model with the configuration, processor and vocabulary size of Salesforce/blip-image-captioning-base.

    ``text`` and ``vision``: changes to its configuration.
    """
    import torch
    from transformers import (
        BertTokenizer,
        BlipConfig,
        BlipForConditionalGeneration,
        BlipImageProcessorPil,
        BlipProcessor,
    )

    config = BlipConfig(vision_config={"image_size": 384, **(vision or {})}, text_config=dict(text or {}))
    text_config: Any = config.text_config
    size = text_config.vocab_size
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PROMPT.split()]
    words = [*special, *(f"word{number}" for number in range(size - len(special) - 2)), "[DEC]", "[ENC]"]
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    tokenizer = BertTokenizer(str(folder / "vocab.txt"))
    text_config.pad_token_id, text_config.sep_token_id, text_config.eos_token_id = 0, 3, 3
    text_config.bos_token_id = size - 2
    torch.manual_seed(0)
    model = BlipForConditionalGeneration(config)
    with torch.no_grad():
        bias = model.text_decoder.cls.predictions.decoder.bias
        bias[:5], bias[-2:] = IMPOSSIBLE, IMPOSSIBLE
    model.save_pretrained(folder)
    vision_config: Any = config.vision_config
    side = vision_config.image_size
    BlipProcessor(BlipImageProcessorPil(size={"height": side, "width": side}), tokenizer).save_pretrained(folder)
    return folder


def qwen2_vl(folder: Path, text: Mapping[str, Any] = QWEN_TEXT, vision: Mapping[str, Any] = QWEN_VISION) -> Path:
    """Writes a model with Qwen2-VL's layout: native resolutions, 3D rotary positions, grouped-query attention."""
    from transformers import Qwen2VLConfig, Qwen2VLImageProcessorPil

    special = {"unk_token": "<unk>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    tokenizer = word_tokenizer(text["vocab_size"], special, QWEN_MARKS, QWEN_CHAT)
    ids = {
        f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{mark}|>")
        for name, mark in (("image", "image_pad"), ("video", "video_pad"), ("vision_start", "vision_start"))
    }
    config = Qwen2VLConfig(
        text_config={**text, **ends(tokenizer)}, vision_config=dict(vision), tie_word_embeddings=True, **ids
    )
    save_random(config, tokenizer, folder)
    Qwen2VLImageProcessorPil().save_pretrained(folder)
    return folder


def smolvlm(
    folder: Path,
    text: Mapping[str, Any] = SMOLVLM_TEXT,
    vision: Mapping[str, Any] = SMOLVLM_VISION,
    longest_edge: int = 4 * TILE,
) -> Path:
    """Writes a model with SmolVLM's layout, which is that of Idefics3: a picture is encoded as a whole and in tiles,
    with the tiles' positions.

    ``longest_edge``: side that pictures are resized to, in pixels.
    """
    from transformers import Idefics3Config, Idefics3ImageProcessorPil, Idefics3Processor

    special = {"unk_token": "<unk>", "eos_token": "<end_of_utterance>", "pad_token": "<pad>"}
    tokenizer = word_tokenizer(text["vocab_size"], special, SMOLVLM_MARKS, SMOLVLM_CHAT)
    config = Idefics3Config(
        text_config={**text, "model_type": "llama", **ends(tokenizer)},
        vision_config=dict(vision),
        scale_factor=4,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    save_random(config, tokenizer, folder)
    tile = vision["image_size"]
    pictures = Idefics3ImageProcessorPil(
        size={"longest_edge": longest_edge},
        max_image_size={"longest_edge": tile},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    tokens = (tile // vision["patch_size"] // 4) ** 2
    Idefics3Processor(pictures, tokenizer, tokens, tokenizer.chat_template).save_pretrained(folder)
    return folder


def smolvlm_one_tile(folder: Path) -> Path:
    return smolvlm(folder, longest_edge=TILE)


def save_random(config: Any, tokenizer: Any, folder: Path) -> None:
    """Writes a model that generates only words, and its tokenizer. Its weights are random and, as in published models,
    in bf16.

    Special tokens have logits of 0, and many words have higher logits. If the output layer is tied to the input
    embedding, the last norm changes the signs of some dimensions, because otherwise the model would repeat each token.
    """
    import torch
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(0)
    model: Any = AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16)
    words = torch.ones(config.get_text_config().vocab_size)
    words[tokenizer.all_special_ids] = 0.0
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(words[:, None])
        norm = (getattr(model.model, "language_model", None) or model.model.text_model).norm.weight
        norm.copy_(torch.where(torch.rand(norm.shape) < 0.5, -1.0, 1.0))
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def ends(tokenizer: Any) -> dict[str, int]:
    """Returns the special tokens in a language model's configuration."""
    end = tokenizer.eos_token_id
    return {"bos_token_id": end, "eos_token_id": end, "pad_token_id": tokenizer.pad_token_id}


def word_tokenizer(size: int, special: Mapping[str, str], marks: Sequence[str], chat: str) -> Any:
    """Creates a tokenizer for ``size`` whole words separated by spaces, with special tokens and a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ("user", "assistant", "User:", "Assistant:", *PROMPT.split())
    known = [*special.values(), *marks, *names]
    words = [*known, *(f"word{number}" for number in range(size - len(known)))]
    backend = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **special, extra_special_tokens=list(marks))
    tokenizer.chat_template = chat
    return tokenizer


MODELS = {
    "BLIP-base": Model(blip, False, 200, 16),
    "Qwen2-VL-0.5B": Model(qwen2_vl, True, 64, 8),
    "SmolVLM-256M, one tile": Model(smolvlm_one_tile, True, 64, 8),
    "SmolVLM-256M": Model(smolvlm, True, 16, 0),
}
