"""Pads rows of token ids to the same length."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def pad_rows(rows: Sequence[Sequence[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pads rows of token ids on the right. Returns ``tokens_RT``, and ``valid_RT``, which is True for tokens."""
    lengths = torch.tensor([len(row) for row in rows])
    width = max(1, int(lengths.max())) if len(rows) else 1
    tokens_RT = torch.full((len(rows), width), pad, dtype=torch.long)
    for r, row in enumerate(rows):
        tokens_RT[r, : len(row)] = torch.tensor(row, dtype=torch.long)
    return tokens_RT, torch.arange(width)[None, :] < lengths[:, None]
