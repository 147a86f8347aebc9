"""Builds hard pools (paper 1, section 3.1): pictures that look like test pictures but are not in the test set.

Paper 1 evaluates on CapEnrich's hard pool (Yao et al. 2022). The paper does not state the number of
neighbours per test picture.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tellapart.data import Dataset
from tellapart.data.new_pictures import beside
from tellapart.errors import UsageError
from tellapart.features.nearest import COPY, Exclusions, Vectors, nearest_among
from tellapart.features.store import FeatureStore
from tellapart.scorers.base import Scorer
from tellapart.types import Item

COSINE_DIGITS = 6  # number of digits of cosines in the file


@dataclass(frozen=True)
class HardPool:
    """The pictures in a pool, in the order of the data, each with its most similar target and their cosine."""

    items: list[Item]
    targets: list[str]
    cosines: list[float]
    asked: int  # number of readable targets

    def lines(self) -> str:
        """Formats the pool as a ``jsonl:`` file for ``eval --distractors FILE``. Raises `UsageError` for archived
        pictures.
        """
        lines = []
        for item, target, cosine in zip(self.items, self.targets, self.cosines, strict=True):
            path = getattr(item.picture, "path", None)
            if not isinstance(path, Path):
                raise UsageError(
                    f"{item.id} is not a separate file, so a list cannot refer to it; unpack the pictures first"
                )
            row = {"image": str(path.absolute()), "id": item.id, "near": target, "cosine": round(cosine, COSINE_DIGITS)}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        return "".join(lines)


def nearest_to_targets(targets_ND: np.ndarray, others_MD: np.ndarray, nearest: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of ``others`` that are among any target's ``nearest``, ascending, and the rows of the targets.

    Ignores copies of a target (cosine above 0.9999). A row that is near several targets is assigned to the nearest
    target, or to the first of several equally near targets. `tellapart.features.nearest` describes how ties are broken.
    """
    near = nearest_among(Vectors.of(targets_ND), Vectors.of(others_MD), nearest, Exclusions(max_cosine=COPY))
    target_M, place_M = np.nonzero(near.rows_NK >= 0)
    row_M, cosine_M = near.rows_NK[target_M, place_M], near.cosine_NK[target_M, place_M]
    order_M = np.lexsort((target_M, -cosine_M, row_M))
    rows, first = np.unique(row_M[order_M], return_index=True)
    return rows, target_M[order_M][first]


def hard_pool(targets: Dataset, others: Dataset, scorer: Scorer, nearest: int) -> HardPool:
    """Builds a hard pool from each target's ``nearest`` pictures in ``others``, according to the scorer's features.

    Leaves out targets that also occur in ``others``, even under other ids, and unreadable pictures, which the data sets
    record. Raises `UsageError` if no pictures are left.
    """
    store = FeatureStore()
    asked = store.readable(targets, scorer.encoder, skipped=targets.unreadable)
    pool = store.readable(beside(others, targets), scorer.encoder, skipped=others.unreadable)
    if not asked or not pool:
        which = targets.spec if not asked else others.spec
        raise UsageError(
            f"{which}: no pictures remain for the pool; expected pictures other than those of the test set"
        )
    features_ND, features_MD = (np.asarray(store.features(items, scorer.encoder)) for items in (asked, pool))
    rows, near = nearest_to_targets(features_ND, features_MD, nearest)
    cosines = np.einsum("nd,nd->n", features_MD[rows], features_ND[near])
    return HardPool(
        [pool[row] for row in rows], [asked[row].id for row in near], [float(x) for x in cosines], len(asked)
    )
