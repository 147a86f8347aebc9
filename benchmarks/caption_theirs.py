"""The reference side of ``benchmarks caption``: loops that use transformers alone, as users write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoConfig, AutoModelForImageTextToText

from benchmarks.caption_models import PROMPT
from tellapart.captioners.processors import whole_processor
from tellapart.models.decoding import Decoding
from tellapart.models.precision import Precision, dtype_of

BATCH = 16


class Loop:
    """Captions photos with a loop over batches. Call the object with a part of the photos."""

    def __init__(self, model: Any, processor: Any, decoding: Decoding) -> None:
        self.model, self.processor, self.decoding = model, processor, decoding

    @staticmethod
    def load(folder: Path, decoding: Decoding, device: str, precision: Precision) -> Loop:
        model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype_of(precision))
        processor = whole_processor(str(folder), AutoConfig.from_pretrained(folder, trust_remote_code=False))
        return Loop(model.to(device).eval(), processor, decoding)

    def __call__(self, paths: Sequence[Path]) -> list[str]:
        model, processor = self.model, self.processor
        chats = bool(getattr(processor, "chat_template", None))
        settings = {
            "max_new_tokens": self.decoding.max_tokens,
            "num_beams": beams_of(self.decoding),
            "do_sample": False,
        }
        prompt = processor.apply_chat_template(CHAT, add_generation_prompt=True, tokenize=False) if chats else PROMPT
        texts: list[str] = []
        for start in range(0, len(paths), BATCH):
            images = [Image.open(path).convert("RGB") for path in paths[start : start + BATCH]]
            inputs = processor(
                images=[[image] for image in images] if chats else images,
                text=[prompt] * len(images),
                padding=True,
                return_tensors="pt",
                padding_side="left",
            ).to(model.device, model.dtype)
            with torch.inference_mode():
                tokens = model.generate(**inputs, **settings)
            if chats:
                tokens = tokens[:, inputs["input_ids"].shape[1] :]
            texts += processor.batch_decode(tokens, skip_special_tokens=True)
        return [caption_of(text) for text in texts]


CHAT = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": PROMPT}]}]


def beams_of(decoding: Decoding) -> int:
    return decoding.beams if decoding.kind == "beam" else 1


def caption_of(text: str) -> str:
    """Removes the prompt from the start of a caption, if the caption starts with it."""
    return " ".join(text.rpartition(PROMPT)[2].split())
