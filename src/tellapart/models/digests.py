"""Computes digests of a model's files and weights, and lists its settings; the model is recognized by them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache

from tellapart.errors import UsageError
from tellapart.models.names import model_folder
from tellapart.utils.checksums import sha256


def files_digest(name: str, kind: str) -> str | None:
    """Hashes the files that ``name`` would be loaded from, without loading the model.

    Returns None if the files are not on disk.
    """
    try:
        folder = Path(model_folder(name, kind))
    except UsageError:
        return None  # a published checkpoint or user code
    if not folder.is_dir():
        try:
            config = try_to_load_from_cache(name, "config.json")
        except ValueError:
            return None  # not a valid hub name
        if not isinstance(config, str):
            return None
        folder = Path(config).parent
    suffixes = (".json", ".safetensors", ".txt", ".model", ".jinja")
    files = sorted(file for file in folder.iterdir() if file.suffix in suffixes and file.is_file())
    lines = [f"{sha256(file)}  {file.name}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


NO_SETTINGS = ("transformers_version", "architectures", "dtype", "torch_dtype")  # keys that do not affect outputs


def settings_of(model: Any) -> str:
    """Returns the settings in a model's configuration that affect its outputs, as JSON.

    Returns "" if the model has no configuration.
    """

    def kept(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            key: kept(entry) for key, entry in value.items() if key not in NO_SETTINGS and not str(key).startswith("_")
        }

    config: Any = getattr(model, "config", None)
    return json.dumps(kept(config.to_dict()), sort_keys=True, default=str) if hasattr(config, "to_dict") else ""


def weights_fingerprint(model: Any, processor: Any, view: str = "") -> str:
    """Hashes a model's weights (names, shapes, bytes), its image preprocessing, and ``view``."""
    digest = hashlib.blake2b(view.encode(), digest_size=12)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    preprocessing = {} if processor is None else processor.to_dict()
    digest.update(json.dumps(preprocessing, sort_keys=True, default=str).encode())
    return digest.hexdigest()
