"""Finds captions that fit other pictures better, with a scorer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tellapart.check.captions import CheckedCaption
from tellapart.check.kinds import Finding
from tellapart.features.store import FeatureStore
from tellapart.scorers import Scorer
from tellapart.types import Item

ROWS_PER_BLOCK = 1024


def ask_scorer(
    rows: Sequence[CheckedCaption], items: Sequence[Item], scorer: Scorer
) -> tuple[list[Finding], dict[str, float]]:
    """Finds captions that fit other pictures better, according to a scorer.

    Also returns the median rank of a caption's own picture, R@1 among all pictures, and the estimated share of shuffled
    captions (half of which rank their own picture in the lower half).
    """
    row_of = {item.id: row for row, item in enumerate(items)}
    rows = [row for row in rows if row.id in row_of and row.words]
    image_ND = np.asarray(FeatureStore().features(items, scorer.encoder), dtype=np.float32)
    text_MD = scorer.text_features([row.text for row in rows]).float().cpu().numpy()
    own_M = np.array([row_of[row.id] for row in rows])
    rank_M, best_M = np.zeros(len(rows), int), np.zeros(len(rows), int)
    for start in range(0, len(rows), ROWS_PER_BLOCK):
        block = slice(start, start + ROWS_PER_BLOCK)
        score_MN = text_MD[block] @ image_ND.T
        rank_M[block] = (score_MN > np.take_along_axis(score_MN, own_M[block, None], 1)).sum(1)
        best_M[block] = score_MN.argmax(1)
    others = max(len(image_ND) - 1, 1)
    facts = {
        "median rank of the caption's own picture": float(np.median(rank_M) + 1),
        "own picture ranked first, %": 100 * float((rank_M == 0).mean()),
        "estimated shuffled pairs, %": min(100.0, 200 * float((rank_M > others / 2).mean())),
    }
    findings = []
    for row, own, rank, best in zip(rows, own_M.tolist(), rank_M.tolist(), best_M.tolist(), strict=True):
        if rank > others / 2:
            findings.append(Finding("misfit", row.id, row.text, f"{rank:,} of {others:,} other pictures fit better"))
        if rank > others / 10 and abs(best - own) == 1:
            findings.append(Finding("shifted", row.id, row.text, f"fits {items[best].id} best"))
    return findings, facts
