"""Converts captions to rows of token ids, and pads the rows to a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def caption_rows(tokenizer: Any, texts: Sequence[str], end: Sequence[int]) -> list[list[int]]:
    """Tokenizes captions as language-model targets: words and an ``end`` token, without a start token."""
    encoded = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [[*row, *end] for row in encoded]


def pad_rows(rows: Sequence[Sequence[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pads rows of token ids on the right. Returns ``tokens_RT``, and ``valid_RT``, which is True for tokens."""
    lengths = torch.tensor([len(row) for row in rows])
    width = max(1, int(lengths.max())) if len(rows) else 1
    tokens_RT = torch.full((len(rows), width), pad, dtype=torch.long)
    for r, row in enumerate(rows):
        tokens_RT[r, : len(row)] = torch.tensor(row, dtype=torch.long)
    return tokens_RT, torch.arange(width)[None, :] < lengths[:, None]
