"""Candidate sets from files, for an evaluation: who is asked for, and who is a candidate only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.errors import UsageError

if TYPE_CHECKING:
    from tellapart.evaluation.candidate_sets import FileSets
    from tellapart.evaluation.protocols import EvalScorer
    from tellapart.types import Item


@dataclass(frozen=True)
class CandidateInputs:
    """Sets by file, and the pictures of them that have no captions to be measured: candidates only."""

    sets: Sequence[FileSets] = ()
    candidates: Sequence[Item] = ()

    def settings(self, ids: Sequence[str], scorer: EvalScorer | None = None) -> dict[str, Any]:
        """What an `EvalContext` over these ids takes of them; candidates' features where there is a scorer."""
        row_of = {id_: row for row, id_ in enumerate((*ids, *(item.id for item in self.candidates)))}
        extra_ND = None
        if self.candidates and scorer is not None:
            from tellapart.features.store import FeatureStore

            extra_ND = np.asarray(FeatureStore().features(self.candidates, scorer.encoder))
        return {
            "file_sets": {own.name: own.rows(row_of) for own in self.sets},
            "origins": {own.name: own.origin for own in self.sets},
            "extra_ND": extra_ND,
        }


def read_inputs(
    bags: Sequence[Path],
    distractors: str | None,
    ids: Sequence[str],
    items: Sequence[Item] | None,
    scorer: str | None,
) -> CandidateInputs:
    """The sets of ``--bags`` and the pool of ``--distractors``; items are all pictures of the data."""
    if not bags and distractors is None:
        return CandidateInputs()
    if scorer is None:
        raise UsageError("--bags and --distractors are for a scorer to choose from; add --scorer MODEL")
    from tellapart.data import open_data
    from tellapart.data.distinct import beside
    from tellapart.evaluation.candidate_sets import hard_pool, read_sets

    captioned = set(ids)
    sets = [own for path in bags for own in read_sets(path)]
    for own in sets:
        if bare := [id_ for id_ in own.asked() if id_ not in captioned]:
            raise UsageError(
                f"{own.name}: {len(bare):,} of {len(own.asked()):,} pictures that its sets ask for have no caption or "
                f"are not in the data, such as '{bare[0]}'; give captions of them all, and the data they are in"
            )
    others: Mapping[str, Item] = {item.id: item for item in items or ()}
    named = dict.fromkeys(id_ for own in sets for id_ in own.ids() if id_ not in captioned)
    candidates = [others[id_] for id_ in named if id_ in others]
    if distractors is not None:
        captions_of = [others[id_] for id_ in ids if id_ in others]
        pool = beside(open_data(distractors), [*captions_of, *candidates])
        sets.append(hard_pool(ids, [item.id for item in pool], f"distractors:{len(pool)}@{distractors}"))
        candidates += pool
    names = [own.name for own in sets]
    if double := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two of the files have sets called {double[0]}; evaluate them one after the other")
    return CandidateInputs(sets, candidates)
