"""Any causal language model of transformers, as perplexity wants it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tellapart.errors import UsageError
from tellapart.evaluation.text_model import HashedModel

if TYPE_CHECKING:
    import torch


class LanguageModel(HashedModel):
    """A language model with its tokenizer. ``start``: whether captions begin with the model's start token.

    ``cut_texts`` counts the distinct captions that were longer than the model's window and were cut.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, *, start: bool = True) -> None:
        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        self.start: int | None = tokenizer.bos_token_id if start else None
        self.window = _window(model.config)
        self.cut_texts = 0

    @property
    def device(self) -> Any:
        return next(self.model.parameters()).device

    @property
    def signature(self) -> str:
        """What two perplexities must share: the model, by name and weights, and what stands before the first token."""
        start = "none" if self.start is None else self.tokenizer.convert_ids_to_tokens(self.start)
        return f"start:{start}|end:unscored|model:{self.name_and_hash}"

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text behind the start token (if there is one), at most ``window`` of them."""
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
    """A causal language model (paper 1: GPT-2) from a folder or a hub name; safetensors only.

    ``precision`` of the weights: ``auto`` is fp32.

    Raises `TellapartError` with the line to type where there is no such model.
    """
    if name == "scenes":
        raise UsageError("no language model ships with the package; type: --language-model gpt2, or a model's folder")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tellapart.models.device import dtype_of, exact_precision, resolve_device
    from tellapart.models.loading import checked_model_folder, loading_errors

    device = resolve_device(device)
    dtype = dtype_of(exact_precision(precision, device))

    where = checked_model_folder(name, "language model")
    with loading_errors(name, "a causal language model such as gpt2"):
        model: Any = AutoModelForCausalLM.from_pretrained(
            where, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    return LanguageModel(model.requires_grad_(False).to(device), tokenizer, str(name), start=start)


def _window(config: Any) -> int:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return int(getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None) or 1024)
