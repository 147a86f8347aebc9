"""Encodes rows so that none depends on what else is in its batch."""

from __future__ import annotations

from collections.abc import Callable

import torch

TOGETHER = 16  # rows that a GPU encodes at once, always so many


def alone(encode: Callable[[torch.Tensor], torch.Tensor], count: int) -> torch.Tensor:
    """Returns the rows that ``encode`` gives for the numbers 0 to ``count`` − 1, none of which depends on the others.

    Matrix products round differently for other numbers of rows, so a row of a batch depends on the size of the batch.
    A CPU encodes one row at a time. A GPU, which would be idle most of that time, encodes `TOGETHER`; the last rows
    are repeated to fill the batch up.
    """
    first = encode(torch.tensor([0]))
    if first.device.type == "cpu":
        return torch.cat([first, *(encode(torch.tensor([row])) for row in range(1, count))])
    parts = []
    for start in range(0, count, TOGETHER):
        rows = torch.arange(start, start + TOGETHER).clamp(max=count - 1)
        parts.append(encode(rows)[: count - start])
    return torch.cat(parts)
