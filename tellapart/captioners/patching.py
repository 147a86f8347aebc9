"""A module of transformers computes something else for a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


def identity(states: torch.Tensor) -> torch.Tensor:
    return states


@contextmanager
def replaced_forward(module: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """For the moment ``module`` computes ``forward`` instead of what it learnt, or of what already replaces it."""
    before = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before
