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
        """Identifies the model (name and weights) and the start token. Perplexities are comparable only if their
        signatures are equal.
        """
        start = "none" if self.start is None else self.tokenizer.convert_ids_to_tokens(self.start)
        return f"start:{start}|end:unscored|model:{self.name_and_hash}"

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns each text's token ids, preceded by the start token if there is one, truncated to ``window``
        tokens.
        """
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
    """Loads a causal language model (GPT-2 in paper 1) from a folder or by its hub name. Reads only safetensors.

    ``precision``: the precision of the weights; ``auto`` means fp32.

    If the model does not exist, raises `TellapartError` with the command to run.
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
