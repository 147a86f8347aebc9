"""Runs the arena on caption files, each of which is a system (``tellapart study arena``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tellapart.data import open_data
from tellapart.data.caption_files import read_caption_file
from tellapart.evaluation.judges.arena import ArenaResult, arena
from tellapart.evaluation.judges.judge import Judge
from tellapart.evaluation.matching import match_files, name_systems, with_ids


def arena_of_files(
    captions: Sequence[Path],
    data: str,
    judge: Judge,
    *,
    resamples: int = 1000,
    seed: int = 0,
    allow_missing: bool = False,
) -> ArenaResult:
    """Compares the first caption that each file gives for a picture. Raises `UsageError`."""
    systems = {name: read_caption_file(path) for name, path in name_systems(captions).items()}
    dataset = open_data(data)
    kept, _, notes = match_files(systems, None, dataset, allow_missing, 0.5)
    items = with_ids(dataset, list(next(iter(kept.values()))))
    assert items is not None
    ids = [item.id for item in items]
    texts = {name: [own[id_][0] for id_ in ids] for name, own in kept.items()}
    found = arena(judge, texts, ids, [item.picture for item in items], resamples=resamples, seed=seed)
    found.notes = notes + found.notes
    return found
