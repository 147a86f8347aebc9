"""A text model from transformers, with a hash of its weights for signatures."""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace
from typing import Any

import torch
import transformers

from tellapart.models.devices import resolve_device
from tellapart.models.digests import weights_fingerprint
from tellapart.models.loading_errors import loading_errors
from tellapart.models.precision import dtype_of, exact_precision
from tellapart.models.saved import checked_model_folder


class HashedModel:
    """A transformers model, its tokenizer, and the name under which it was loaded. ``window``: the maximum text length
    in tokens.

    ``cut_texts`` counts the distinct texts that were truncated to fit the window.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, window: int) -> None:
        self.model, self.tokenizer, self.name, self.window = model.eval(), tokenizer, name, window
        self.cut_texts = 0

    @property
    def device(self) -> Any:
        return next(self.model.parameters()).device

    @cached_property
    def fingerprint(self) -> str:
        """Returns a hash of all weights and of the vocabulary."""
        return weights_fingerprint(self.model, SimpleNamespace(to_dict=self.tokenizer.get_vocab))

    @property
    def name_and_hash(self) -> str:
        """Returns the last part of the name and the first eight hex digits of the hash, for example
        ``gpt2@1a2b3c4d``.
        """
        return f"{str(self.name).rstrip('/').split('/')[-1]}@{self.fingerprint[:8]}"


def load_text_model(
    kind: Any, name: str, what: str, expected: str, device: str | torch.device, precision: str
) -> tuple[Any, Any]:
    """Loads a frozen model and its tokenizer. Reads only safetensors and runs no remote code. Raises
    `TellapartError`.
    """
    device = resolve_device(device)
    dtype = dtype_of(exact_precision(precision, device))
    where = checked_model_folder(name, what)
    with loading_errors(name, expected):
        model = kind.from_pretrained(where, dtype=dtype, use_safetensors=True, trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    return model.requires_grad_(False).to(device), tokenizer
