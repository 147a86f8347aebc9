"""Counts the parameters of the captioners in docs/captioners.md on the meta device.

    python tools/captioner_sizes.py

The sizes of the layers are those of the published configurations; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    Blip2Config,
    Blip2ForConditionalGeneration,
    BlipConfig,
    BlipForConditionalGeneration,
    CLIPVisionConfig,
    GitConfig,
    GitForCausalLM,
    GPT2Config,
    InstructBlipConfig,
    InstructBlipForConditionalGeneration,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PaliGemmaConfig,
    PaliGemmaForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
)

from tellapart.captioners.clipcap import ClipCapConfig, ClipCapModel

VIT_L = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
OPT = {
    "model_type": "opt", "hidden_size": 2560, "word_embed_proj_dim": 2560, "ffn_dim": 10240, "num_hidden_layers": 32,
    "num_attention_heads": 32, "vocab_size": 50304,
}  # fmt: skip
T5_XL = {
    "model_type": "t5", "d_model": 2048, "d_kv": 64, "d_ff": 5120, "num_layers": 24, "num_heads": 32,
    "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
}  # fmt: skip
LLAMA = {"model_type": "llama", "vocab_size": 32064}
VICUNA_15 = {**LLAMA, "max_position_embeddings": 4096}
GEMMA = {
    "model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18,
    "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 257216,
}  # fmt: skip
SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "patch_size": 14, "image_size": 224,
}  # fmt: skip
QWEN_2B = {
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
    "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
QWEN_7B = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 128000,
}  # fmt: skip

Made = tuple[Callable[[Any], Any], Any]
CAPTIONERS: dict[str, Made] = {
    "ClipCap, ViT-B/32 + GPT-2": (
        ClipCapModel,
        ClipCapConfig(vision_config=CLIPVisionConfig(projection_dim=512), text_config=GPT2Config()),
    ),
    "BLIP base": (BlipForConditionalGeneration, BlipConfig(vision_config={"image_size": 384})),
    "BLIP large": (
        BlipForConditionalGeneration,
        BlipConfig(vision_config={**VIT_L, "image_size": 384}, text_config={"encoder_hidden_size": 1024}),
    ),
    "GIT base": (GitForCausalLM, GitConfig()),
    "GIT large": (GitForCausalLM, GitConfig(vision_config={**VIT_L, "patch_size": 14})),
    "BLIP-2, OPT 2.7B": (Blip2ForConditionalGeneration, Blip2Config(text_config=OPT)),
    "BLIP-2, Flan-T5 XL": (Blip2ForConditionalGeneration, Blip2Config(text_config=T5_XL)),
    "InstructBLIP, Vicuna 7B": (InstructBlipForConditionalGeneration, InstructBlipConfig(text_config=LLAMA)),
    "InstructBLIP, Flan-T5 XL": (InstructBlipForConditionalGeneration, InstructBlipConfig(text_config=T5_XL)),
    "PaliGemma 3B, 224 px": (
        PaliGemmaForConditionalGeneration,
        PaliGemmaConfig(vision_config=SIGLIP, text_config=GEMMA, projection_dim=2048, hidden_size=2048),
    ),
    "LLaVA 1.5 7B": (LlavaForConditionalGeneration, LlavaConfig(text_config=VICUNA_15)),
    "Qwen2-VL 2B": (
        Qwen2VLForConditionalGeneration,
        Qwen2VLConfig(
            text_config=QWEN_2B,
            vision_config={"embed_dim": 1280, "hidden_size": 1536},
            tie_word_embeddings=True,
        ),
    ),
    "Qwen2.5-VL 7B": (
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLConfig(
            text_config=QWEN_7B,
            vision_config={"hidden_size": 1280, "out_hidden_size": 3584, "intermediate_size": 3420},
        ),
    ),
}  # fmt: skip


def main() -> None:
    print(f"{'captioner':28}{'parameters':>16}{'weights in fp32':>18}{'language model, tokens':>24}")
    for name, (family, config) in CAPTIONERS.items():
        with torch.device("meta"):
            model = family(config)
        count = sum(parameter.numel() for parameter in model.parameters())
        text = config.text_config if hasattr(config, "text_config") else config
        window = getattr(text, "max_position_embeddings", None) or "no limit"
        print(f"{name:28}{count / 1e9:>14.2f} B{4 * count / 1e9:>15.1f} GB{window!s:>24}")


if __name__ == "__main__":
    main()
