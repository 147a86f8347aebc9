"""``tellapart study arena``: caption files against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tellapart.data.caption_files import read_caption_file
from tellapart.evaluation.caption_inputs import match_files, name_systems, open_optional, with_ids
from tellapart.evaluation.judges.arena import ArenaResult, arena

if TYPE_CHECKING:
    from tellapart.evaluation.judges.judge import Judge


def run_arena(
    captions: Sequence[Path],
    data: str,
    judge: Judge,
    *,
    resamples: int = 1000,
    seed: int = 0,
    allow_missing: bool = False,
) -> ArenaResult:
    """The first caption of every picture of each file, in the arena. Raises `UsageError`."""
    systems = {name: read_caption_file(path) for name, path in name_systems(captions).items()}
    dataset = open_optional(data)
    kept, _, notes = match_files(systems, None, dataset, allow_missing, 0.5)
    items = with_ids(dataset, list(next(iter(kept.values()))))
    assert items is not None
    ids = [item.id for item in items]
    texts = {name: [own[id_][0] for id_ in ids] for name, own in kept.items()}
    found = arena(judge, texts, ids, [item.picture for item in items], resamples=resamples, seed=seed)
    found.notes = notes + found.notes
    return found
