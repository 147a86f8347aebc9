"""A hard pool: pictures beyond a test set that look like those of it (paper 1, section 3.1).

The pool of CapEnrich (Yao et al. 2022), in which paper 1 measures, is of this kind; how many neighbours of each test
picture it took, paper 1 does not say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tellapart.errors import UsageError
from tellapart.features.nearest import COPY, Exclusions, Vectors, nearest_among
from tellapart.types import Item

if TYPE_CHECKING:
    from tellapart.data import Dataset
    from tellapart.models.protocols import FrozenScorer

COSINE_DIGITS = 6  # written to the file


@dataclass(frozen=True)
class HardPool:
    """The pictures of a pool, in the order of their data, each with its most alike target and their cosine."""

    items: list[Item]
    targets: list[str]
    cosines: list[float]
    asked: int  # targets that could be read

    def lines(self) -> str:
        """A data file for ``eval --distractors FILE``, as ``jsonl:`` reads it. Raises for pictures in archives."""
        lines = []
        for item, target, cosine in zip(self.items, self.targets, self.cosines, strict=True):
            path = getattr(item.picture, "path", None)
            if not isinstance(path, Path):
                raise UsageError(f"{item.id} is no file of its own, so that a list cannot name it; unpack the pictures")
            row = {"image": str(path.absolute()), "id": item.id, "near": target, "cosine": round(cosine, COSINE_DIGITS)}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        return "".join(lines)


def nearest_to_targets(targets_ND: np.ndarray, others_MD: np.ndarray, nearest: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ``others`` that are among the ``nearest`` of any target by cosine, ascending, and their targets' rows.

    Copies of a target (cosine above 0.9999) do not count for it. Ties: see `tellapart.features.nearest`. A row near
    several targets belongs to the nearest one, of equally near ones to the first.
    """
    found = nearest_among(Vectors.of(targets_ND), Vectors.of(others_MD), nearest, Exclusions(max_cosine=COPY))
    target_M, place_M = np.nonzero(found.rows_NK >= 0)
    row_M, cosine_M = found.rows_NK[target_M, place_M], found.cosine_NK[target_M, place_M]
    order_M = np.lexsort((target_M, -cosine_M, row_M))
    rows, first = np.unique(row_M[order_M], return_index=True)
    return rows, target_M[order_M][first]


def hard_pool(targets: Dataset, others: Dataset, scorer: FrozenScorer, nearest: int) -> HardPool:
    """The ``nearest`` pictures of ``others`` to each of ``targets`` by the scorer's features, once each.

    Pictures of ``others`` that are targets, whatever they are called, are left out, and those that cannot be read,
    which the data sets list. Raises `UsageError` where nothing is left.
    """
    from tellapart.data.distinct import beside
    from tellapart.features.store import FeatureStore

    store = FeatureStore()
    asked = store.readable(targets, scorer.encoder, skipped=targets.unreadable)
    pool = store.readable(beside(others, targets), scorer.encoder, skipped=others.unreadable)
    if not asked or not pool:
        which = targets.spec if not asked else others.spec
        raise UsageError(f"{which}: no picture is left to make a pool of; expected other pictures than the test set's")
    features_ND, features_MD = (np.asarray(store.features(items, scorer.encoder)) for items in (asked, pool))
    rows, near = nearest_to_targets(features_ND, features_MD, nearest)
    cosines = np.einsum("nd,nd->n", features_MD[rows], features_ND[near])
    return HardPool(
        [pool[row] for row in rows], [asked[row].id for row in near], [float(x) for x in cosines], len(asked)
    )
