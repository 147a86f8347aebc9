"""From a model's name to a captioner."""

from __future__ import annotations

import torch

from tellapart.captioners.base import Captioner
from tellapart.errors import TellapartError
from tellapart.loading import model_folder, reading


def load_captioner(name: str, device: str | torch.device = "cpu") -> Captioner:
    """A captioner from a folder, a run, a hub name, or ``scenes`` (ships with the package).

    Safetensors only, float32. Raises `TellapartError` with the line to type where there is no such model.
    """
    from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer

    import tellapart.vision  # noqa: F401  (registers the vision tower of our own captioners)
    from tellapart.captioners.clipcap import ClipCap, ClipCapConfig, ClipCapModel

    where = model_folder(name, "captioner")
    with reading(name, "a captioner: a folder or hub name with config.json and safetensors"):
        config = AutoConfig.from_pretrained(where)
        if not isinstance(config, ClipCapConfig):
            raise TellapartError(f"{name} is a {config.model_type} model; expected a captioner of type clipcap")
        model = ClipCapModel.from_pretrained(where, dtype=torch.float32, use_safetensors=True)
        tokenizer = AutoTokenizer.from_pretrained(where)
        processor = AutoImageProcessor.from_pretrained(where, backend="pil")
    return ClipCap(model.eval().to(device), tokenizer, processor, str(name))
