"""Token rows of one length."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def pad_rows(rows: Sequence[Sequence[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns token rows as ``tokens_RT``, padded on the right, and ``valid_RT``, True on tokens."""
    lengths = torch.tensor([len(row) for row in rows])
    width = max(1, int(lengths.max())) if len(rows) else 1
    tokens_RT = torch.full((len(rows), width), pad, dtype=torch.long)
    for r, row in enumerate(rows):
        tokens_RT[r, : len(row)] = torch.tensor(row, dtype=torch.long)
    return tokens_RT, torch.arange(width)[None, :] < lengths[:, None]
