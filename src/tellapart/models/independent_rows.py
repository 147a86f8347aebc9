"""Encodes rows so that the result for a row does not depend on the other rows in its batch."""

from __future__ import annotations

from collections.abc import Callable

import torch

ROWS_AT_ONCE = 16  # fixed number of rows that a GPU encodes at once


def encode_independently(encode: Callable[[torch.Tensor], torch.Tensor], count: int) -> torch.Tensor:
    """Encodes the rows 0 to ``count`` − 1 with ``encode``, so that no row's result depends on the other rows.

    Matrix products round differently for different numbers of rows, so a row's result would depend on the batch size. A
    CPU therefore encodes one row at a time. A GPU would be mostly idle with one row, so it encodes `ROWS_AT_ONCE` rows
    at a time, and the last batch is filled up with repeated rows.
    """
    first = encode(torch.tensor([0]))
    if first.device.type == "cpu":
        return torch.cat([first, *(encode(torch.tensor([row])) for row in range(1, count))])
    parts = []
    for start in range(0, count, ROWS_AT_ONCE):
        rows = torch.arange(start, start + ROWS_AT_ONCE).clamp(max=count - 1)
        parts.append(encode(rows)[: count - start])
    return torch.cat(parts)
