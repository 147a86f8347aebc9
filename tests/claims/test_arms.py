"""The settings of the arms are those of the papers."""

from __future__ import annotations

from tellapart.claims.arms import ARMS


def test_self_retrieval_trains_the_mapper_whatever_lora_is_on() -> None:
    """Paper 2, section 4.2: "ClipCap's MLP adapter is trained normally"."""
    on = {
        "sr_l": (["mapper", "language_model"], ["c_attn", "attn.c_proj"]),
        "sr_v": (["vision", "mapper"], ["convolution"]),
        "sr_lv": (["vision", "mapper", "language_model"], ["c_attn", "attn.c_proj", "convolution"]),
    }
    for name, (train, modules) in on.items():
        captioner = (ARMS[name].table or {})["captioner"]
        assert (captioner["train"], captioner["lora"]["modules"]) == (train, modules)
