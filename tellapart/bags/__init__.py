"""Bags of look-alikes: mined from anybody's pictures, for benchmarks and for training. Parts load on first use."""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "Bag": "mine",
    "Neighbours": "search",
    "TrainingBags": "mine",
    "curate_bags": "mine",
    "mine_bags": "mine",
    "multimodal": "mine",
    "nearest_neighbours": "search",
    "training_bags": "mine",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
