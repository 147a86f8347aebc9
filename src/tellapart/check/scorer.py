"""Finds captions that fit other pictures better, with a scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tellapart.check.captions import CheckedCaption
from tellapart.check.kinds import Finding, Found
from tellapart.features.store import FeatureStore
from tellapart.scorers import Scorer
from tellapart.types import Item

ROWS_PER_BLOCK = 1024


def ask_scorer(rows: Sequence[CheckedCaption], items: Sequence[Item], scorer: Scorer) -> Found:
    row_of = {item.id: row for row, item in enumerate(items)}
    own = [row for row in rows if row.id in row_of and row.words]
    image_ND = np.asarray(FeatureStore().features(items, scorer.encoder), dtype=np.float32)
    text_MD = scorer.text_features([row.text for row in own]).float().cpu().numpy()
    return by_scorer(own, row_of, image_ND, text_MD)


def by_scorer(
    rows: Sequence[CheckedCaption], row_of: Mapping[str, int], image_ND: np.ndarray, text_MD: np.ndarray
) -> Found:
    """Finds captions that fit other pictures better, according to a scorer.

    row_of: the row of each picture's features. The statistics are the median rank of a caption's own picture, R@1 among
    all pictures, and the estimated share of shuffled captions (half of which rank their own picture in the lower half).
    """
    keys = list(row_of)
    own_M = np.array([row_of[row.id] for row in rows])
    rank_M, best_M = np.zeros(len(rows), int), np.zeros(len(rows), int)
    for start in range(0, len(rows), ROWS_PER_BLOCK):
        score_MN = text_MD[start : start + ROWS_PER_BLOCK] @ image_ND.T
        own = own_M[start : start + ROWS_PER_BLOCK]
        mine_M = score_MN[np.arange(len(own)), own]
        rank_M[start : start + ROWS_PER_BLOCK] = (score_MN > mine_M[:, None]).sum(1)
        best_M[start : start + ROWS_PER_BLOCK] = score_MN.argmax(1)
    others = max(len(image_ND) - 1, 1)
    findings = []
    for row, own, rank, best in zip(rows, own_M.tolist(), rank_M.tolist(), best_M.tolist(), strict=True):
        if rank > others / 2:
            findings.append(Finding("misfit", row.id, row.text, f"{rank:,} of {others:,} other pictures fit better"))
        if rank > others / 10 and abs(best - own) == 1:
            findings.append(Finding("shifted", row.id, row.text, f"fits {keys[best]} best"))
    facts = {
        "median rank of the caption's own picture": float(np.median(rank_M) + 1),
        "own picture ranked first, %": 100 * float((rank_M == 0).mean()),
        "estimated shuffled pairs, %": min(100.0, 200 * float((rank_M > others / 2).mean())),
    }
    return Found(findings, facts)
