"""Finds defects with models: captions that fit other pictures better, and words that fit any picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tellapart.captioners import Captioner
from tellapart.check.captions import CheckedCaption
from tellapart.check.kinds import Finding
from tellapart.features.store import FeatureStore
from tellapart.features.views import make_view
from tellapart.rewards.evidence import word_evidence
from tellapart.rewards.speaker import Speaker
from tellapart.scorers import Scorer
from tellapart.types import Batch, Item, Rollout
from tellapart.utils.progress import track

ROWS_PER_BLOCK = 1024
DOUBT = 0.0  # nats by which a word must be more likely for its own picture than, on average, for others
DOUBTFUL_PICTURES = 32


@dataclass(frozen=True)
class Found:
    """Findings, and statistics about the whole set."""

    findings: list[Finding]
    facts: dict[str, float]


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


def ask_captioner(rows: Sequence[CheckedCaption], items: Sequence[Item], captioner: Captioner) -> Found:
    row_of = {item.id: row for row, item in enumerate(items)}
    view = make_view(captioner, FeatureStore())
    return by_captioner([row for row in rows if row.id in row_of and row.words], row_of, captioner, view.rows(items))


def by_captioner(rows: Sequence[CheckedCaption], row_of: Mapping[str, int], captioner: Captioner, visual: Any) -> Found:
    """Finds content words that, according to a captioner, are less likely for their own picture than for other
    pictures on average.

    A word's score is its pointwise mutual information with the picture (`tellapart.rewards.evidence`), relative to the
    other pictures in a batch of `DOUBTFUL_PICTURES`. visual: the captioner's inputs for all pictures, N×….
    """

    speaker = Speaker(captioner)
    captioner.model.eval()
    findings, words, doubted = [], 0, 0
    for start in track(range(0, len(rows), DOUBTFUL_PICTURES), label="reading captions"):
        block = list(rows[start : start + DOUBTFUL_PICTURES])
        if len(block) == 1:
            block = [*rows[max(start - 1, 0) : start], *block]
        places = np.array([row_of[row.id] for row in block])
        tokens_RT, valid_RT = (
            x.to(captioner.device) for x in captioner.pad(captioner.tokenize([r.text for r in block]))
        )
        rollout = Rollout(tokens_RT, valid_RT, [row.text for row in block])
        seen = captioner.inputs(torch.as_tensor(np.ascontiguousarray(visual[places])))
        with torch.no_grad():
            log_p_ORT = speaker.log_probs(rollout, Batch([], torch.from_numpy(places), seen))
        evidence = word_evidence(log_p_ORT, rollout, captioner.tokenizer)
        for r, row in enumerate(block):
            here = evidence.written(r)
            bad = [word for w, word in here if evidence.evidence_RW[r, w] < DOUBT]
            words, doubted = words + len(here), doubted + len(bad)
            if bad:
                spans = tuple((word.start, word.end) for word in bad)
                text = ", ".join(row.text[start:end] for start, end in spans)
                findings.append(Finding("doubtful", row.id, row.text, text, spans))
    return Found(findings, {"doubtful words, %": 100 * doubted / words if words else float("nan")})
