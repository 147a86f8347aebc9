"""From a model's name to a captioner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tellapart.captioners.base import Captioner
from tellapart.errors import TellapartError, nearest
from tellapart.loading import model_folder, reading


def clipcap(where: str) -> tuple[Any, type[Captioner]]:
    from tellapart.captioners.clipcap import ClipCap, ClipCapModel

    return ClipCapModel.from_pretrained(where, dtype=torch.float32, use_safetensors=True), ClipCap


def blip(where: str) -> tuple[Any, type[Captioner]]:
    from transformers import BlipForConditionalGeneration

    from tellapart.captioners.blip import Blip

    return BlipForConditionalGeneration.from_pretrained(where, dtype=torch.float32, use_safetensors=True), Blip


# model_type of config.json -> its loader. A new captioner is a module, one line here, and a test.
FAMILIES: dict[str, Callable[[str], tuple[Any, type[Captioner]]]] = {"clipcap": clipcap, "blip": blip}


def load_captioner(name: str, device: str | torch.device = "cpu") -> Captioner:
    """A captioner from a folder, a run, a hub name, or ``scenes`` (ships with the package).

    Safetensors only, float32. Raises `TellapartError` with the line to type where there is no such model.
    """
    from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer

    import tellapart.captioners.clipcap
    import tellapart.vision  # noqa: F401  (both register their classes with transformers)

    where = model_folder(name, "captioner")
    with reading(name, "a captioner: a folder or hub name with config.json and safetensors"):
        kind = AutoConfig.from_pretrained(where).model_type
        if kind not in FAMILIES:
            raise TellapartError(f"{name} is a {kind} model, which is no captioner known here{nearest(kind, FAMILIES)}")
        model, family = FAMILIES[kind](where)
        tokenizer = AutoTokenizer.from_pretrained(where)
        processor = AutoImageProcessor.from_pretrained(where, backend="pil")
    model.eval().to(device)
    return family(model, tokenizer, processor, str(name))
