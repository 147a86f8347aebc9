"""A causal language model, for perplexity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers

from tellapart.errors import UsageError
from tellapart.evaluation.hashed_model import HashedModel, load_text_model


class LanguageModel(HashedModel):
    """A causal language model. ``start``: whether captions begin with the model's start token."""

    def __init__(self, model: Any, tokenizer: Any, name: str, *, start: bool = True) -> None:
        super().__init__(model, tokenizer, name, _window(model.config))
        self.start: int | None = tokenizer.bos_token_id if start else None

    @property
    def signature(self) -> str:
        """Identifies the model (name, weights) and the start token. Only perplexities with equal signatures are
        comparable.
        """
        start = "none" if self.start is None else self.tokenizer.convert_ids_to_tokens(self.start)
        return f"start:{start}|end:unscored|model:{self.name_and_hash}"

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the token ids of each text after the start token (if any), at most ``window``."""
        if not texts:
            return []
        encoded = self.tokenizer(list(texts), add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
        front = [] if self.start is None else [self.start]
        rows = [[*front, *row] for row in encoded]
        self.cut_texts += sum(len(row) > self.window for row in rows)
        return [row[: self.window] for row in rows]


def load_language_model(
    name: str, device: str | torch.device = "auto", precision: str = "auto", *, start: bool = True
) -> LanguageModel:
    """Loads a causal language model (paper 1: GPT-2) from a folder or a hub name; safetensors only.

    ``precision``: precision of the weights; ``auto`` is fp32.

    Raises `TellapartError` with the command to run if there is no such model.
    """
    if name == "scenes":
        raise UsageError(
            "perplexity requires a language model, and the package includes none; add "
            "--set language_model=gpt2, or a model's folder"
        )
    expected = "a causal language model such as gpt2"
    loaded = load_text_model(transformers.AutoModelForCausalLM, name, "language model", expected, device, precision)
    return LanguageModel(*loaded, str(name), start=start)


def _window(config: Any) -> int:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return int(getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None) or 1024)
