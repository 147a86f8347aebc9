"""Boosts the captions of scenes with the scripted backend."""

from __future__ import annotations

from collections.abc import Iterable

from tellapart.boost.scripted import Scripted
from tellapart.boost.stages import STAGE_NAMES, stages
from tellapart.types import Item


def boost_scenes(items: Iterable[Item], error: float, seed: int = 0) -> list[dict[str, str]]:
    """Boosts items with the paper's prompts, in memory and without a ledger. Returns each item's texts by stage."""
    backend = Scripted(error, seed)
    chosen = stages(STAGE_NAMES, backend, backend)
    boosted: list[dict[str, str]] = []
    for item in items:
        boosted.append({})
        for stage in chosen:
            boosted[-1][stage.name] = backend.complete(stage.build_request(item, boosted[-1])).text
    return boosted
