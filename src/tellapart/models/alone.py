"""Encodes rows independently of the other rows in their batch."""

from __future__ import annotations

from collections.abc import Callable

import torch

TOGETHER = 16  # fixed number of rows that a GPU encodes at once


def alone(encode: Callable[[torch.Tensor], torch.Tensor], count: int) -> torch.Tensor:
    """Encodes the indices 0 to ``count`` − 1 with ``encode`` so that no row depends on the others.

    Matrix products round differently for different numbers of rows, so a row depends on the size of its batch. A CPU
    therefore encodes one row at a time. A GPU, which would be mostly idle, encodes `TOGETHER` rows at a time, and the
    last rows are repeated to fill the batch.
    """
    first = encode(torch.tensor([0]))
    if first.device.type == "cpu":
        return torch.cat([first, *(encode(torch.tensor([row])) for row in range(1, count))])
    parts = []
    for start in range(0, count, TOGETHER):
        rows = torch.arange(start, start + TOGETHER).clamp(max=count - 1)
        parts.append(encode(rows)[: count - start])
    return torch.cat(parts)
