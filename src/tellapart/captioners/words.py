"""New words for a captioner whose tokenizer knows whole words only: those of another corpus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from tellapart.captioners.base import Captioner
from tellapart.errors import UsageError
from tellapart.models.tokens import with_new_words


def add_words(captioner: Captioner, texts: Iterable[str], min_count: int) -> int:
    """Give the captioner the words of ``texts`` that it lacks and that occur so often, in place; how many there are.

    A new word begins as the word for what is unknown, which it was read as before. Raises `UsageError` where the
    tokenizer or the language model is of a kind that cannot grow.
    """
    before = len(captioner.tokenizer)
    try:
        tokenizer = with_new_words(captioner.tokenizer, texts, min_count)
    except UsageError as error:
        raise UsageError(f"captioner.new_words: {captioner.name}: {error}") from None
    language_model: Any = captioner.parts()["language_model"]
    config = captioner.model.config
    if hasattr(language_model, "resize_token_embeddings"):
        language_model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        tables = [language_model.get_input_embeddings(), language_model.get_output_embeddings()]
        config.text_config.vocab_size = len(tokenizer)
    else:
        tables = [resized(language_model.embed, len(tokenizer)), resized(language_model.head, len(tokenizer))]
        language_model.embed, language_model.head = tables
        config.vocab_size = len(tokenizer)
    unknown = tokenizer.unk_token_id
    with torch.no_grad():
        for table in tables:
            for rows in table.parameters():
                rows[before:] = rows[unknown]
    captioner.tokenizer = tokenizer
    return len(tokenizer) - before


def resized(table: nn.Embedding | nn.Linear, size: int) -> nn.Embedding | nn.Linear:
    """An embedding or an output layer with more rows; the old ones are as they were."""
    new: nn.Embedding | nn.Linear
    if isinstance(table, nn.Embedding):
        new = nn.Embedding(size, table.embedding_dim)
    else:
        new = nn.Linear(table.in_features, size)
    new.to(table.weight.device)
    with torch.no_grad():
        for rows, old in zip(new.parameters(), table.parameters(), strict=True):
            rows[: len(old)] = old
    return new
