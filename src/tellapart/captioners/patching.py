"""A module of transformers computes something else for a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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


@contextmanager
def default_generation_settings(*owners: Any, start: int | None = None) -> Iterator[None]:
    """For the moment what checkpoints say of generation (penalties, temperatures) counts for nothing in ``owners``.

    So sampling and scoring use the same distribution, and a model that was saved decodes as the one that it was made
    of. ``start``: the first token of a decoder.
    """
    from transformers import GenerationConfig

    with ExitStack() as stack:
        for owner in owners:
            if (own := getattr(owner, "generation_config", None)) is not None:
                owner.generation_config = GenerationConfig(decoder_start_token_id=start)
                stack.callback(setattr, owner, "generation_config", own)
        yield
