"""BLIP, tiny, with random weights, saved in its real layout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]")


def save_blip(folder: Path, words: Sequence[str], *, layers: int = 1, positions: int = 24) -> Path:
    """A BLIP that knows these ``words``, in ``folder``, which is returned."""
    import torch
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
