"""BLIP, tiny, with random weights: in transformers' layout, and in its authors'."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]")


def save_blip(folder: Path, words: Sequence[str], *, layers: int = 1, positions: int = 24) -> Path:
    """A BLIP that knows these ``words``, in ``folder``, which is returned."""
    from transformers import BertTokenizer, BlipConfig, BlipForConditionalGeneration, BlipImageProcessorPil

    vocabulary = [*SPECIAL, *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": layers, "num_attention_heads": 2}
    text = {
        **small, "vocab_size": len(vocabulary), "max_position_embeddings": positions, "encoder_hidden_size": 16,
        "bos_token_id": 5, "sep_token_id": 3, "eos_token_id": 3, "pad_token_id": 0, "projection_dim": 8,
    }  # fmt: skip
    config = BlipConfig(text_config=text, vision_config={**small, "image_size": 32, "patch_size": 16}, projection_dim=8)
    torch.manual_seed(0)
    BlipForConditionalGeneration(config).save_pretrained(folder)
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    BlipImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


TINY = {"width": 128, "layers": 2, "patches": 4, "text": 128}


def official_blip(width: int, layers: int, patches: int, *, text: int = 768, words: int = 30524) -> dict[str, Any]:
    """Name to shape of all that is in a BLIP caption checkpoint: a ViT as timm names it, BERT with cross-attention."""
    shapes: dict[str, Any] = {
        "visual_encoder.cls_token": (1, 1, width),
        "visual_encoder.pos_embed": (1, 1 + patches, width),
        "visual_encoder.patch_embed.proj.weight": (width, 3, 16, 16),
        "visual_encoder.patch_embed.proj.bias": (width,),
        **both("visual_encoder.norm", (width,)),
    }
    for n in range(layers):
        block = f"visual_encoder.blocks.{n}"
        shapes |= both(f"{block}.norm1", (width,)) | both(f"{block}.norm2", (width,))
        shapes |= both(f"{block}.attn.qkv", (3 * width, width)) | both(f"{block}.attn.proj", (width, width))
        shapes |= both(f"{block}.mlp.fc1", (4 * width, width)) | both(f"{block}.mlp.fc2", (width, 4 * width))
    bert = "text_decoder.bert"
    shapes |= {
        f"{bert}.embeddings.position_ids": (1, 512),
        f"{bert}.embeddings.word_embeddings.weight": (words, text),
        f"{bert}.embeddings.position_embeddings.weight": (512, text),
        **both(f"{bert}.embeddings.LayerNorm", (text,)),
    }
    for n in range(min(layers, 12)):
        layer = f"{bert}.encoder.layer.{n}"
        for name, seen in (("attention", text), ("crossattention", width)):
            shapes |= both(f"{layer}.{name}.self.query", (text, text))
            shapes |= both(f"{layer}.{name}.self.key", (text, seen)) | both(f"{layer}.{name}.self.value", (text, seen))
            shapes |= both(f"{layer}.{name}.output.dense", (text, text))
            shapes |= both(f"{layer}.{name}.output.LayerNorm", (text,))
        shapes |= both(f"{layer}.intermediate.dense", (4 * text, text)) | both(
            f"{layer}.output.dense", (text, 4 * text)
        )
        shapes |= both(f"{layer}.output.LayerNorm", (text,))
    head = "text_decoder.cls.predictions"
    shapes |= {f"{head}.bias": (words,), **both(f"{head}.decoder", (words, text))}
    return shapes | both(f"{head}.transform.dense", (text, text)) | both(f"{head}.transform.LayerNorm", (text,))


def both(name: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def write_blip(path: Path, words: int = 17, **extra: torch.Tensor) -> dict[str, torch.Tensor]:
    """Writes a checkpoint of the authors' program, and returns its weights; ``words``: of the vocabulary."""
    generator = torch.Generator().manual_seed(4)
    shapes = official_blip(**TINY, words=words)
    state = {key: torch.randn(shape, generator=generator) * 0.2 for key, shape in shapes.items()}
    state["text_decoder.bert.embeddings.position_ids"] = torch.arange(512)[None]
    state["text_decoder.cls.predictions.decoder.weight"] = state["text_decoder.bert.embeddings.word_embeddings.weight"]
    state["text_decoder.cls.predictions.decoder.bias"] = state["text_decoder.cls.predictions.bias"]
    torch.save({"model": state | extra, "epoch": 3, "config": {"image_size": 32}}, path)
    return state
