"""Renames published weights to the names in another implementation of the model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch


def renamed(state: Mapping[str, torch.Tensor], names: Sequence[tuple[str, str]]) -> dict[str, torch.Tensor]:
    """Returns the weights under new names. ``names``: pairs of a pattern and its replacement, applied in order."""
    new: dict[str, torch.Tensor] = {}
    for key, tensor in state.items():
        for pattern, name in names:
            key = re.sub(pattern, name, key)
        new[key] = tensor
    return new
