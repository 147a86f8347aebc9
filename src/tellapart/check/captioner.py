"""Finds words that fit any picture, with a captioner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tellapart.captioners import Captioner
from tellapart.check.captions import CheckedCaption
from tellapart.check.kinds import Finding
from tellapart.features.store import FeatureStore
from tellapart.features.views import make_view
from tellapart.rewards.evidence import word_evidence
from tellapart.rewards.speaker import Speaker
from tellapart.types import Batch, Item
from tellapart.utils.progress import track

DOUBT = 0.0  # nats by which a word must be more likely for its own picture than, on average, for others
DOUBTFUL_PICTURES = 32


def ask_captioner(
    rows: Sequence[CheckedCaption], items: Sequence[Item], captioner: Captioner
) -> tuple[list[Finding], dict[str, float]]:
    """Finds content words that, according to a captioner, are less likely for their own picture than for other
    pictures on average.

    A word's score is its pointwise mutual information with the picture (`tellapart.rewards.evidence`), relative to the
    other pictures in a batch of `DOUBTFUL_PICTURES`. Also returns the share of such words.
    """
    row_of = {item.id: row for row, item in enumerate(items)}
    rows = [row for row in rows if row.id in row_of and row.words]
    visual = make_view(captioner, FeatureStore()).rows(items)
    speaker = Speaker(captioner)
    captioner.model.eval()
    findings, words, doubted = list[Finding](), 0, 0
    for start in track(range(0, len(rows), DOUBTFUL_PICTURES), label="reading captions"):
        first = start - (0 < start == len(rows) - 1)  # the last row alone is compared with the one before
        block = rows[first : start + DOUBTFUL_PICTURES]
        places = np.array([row_of[row.id] for row in block])
        rollout = captioner.rollout_of([row.text for row in block])
        seen = captioner.inputs(torch.as_tensor(np.ascontiguousarray(visual[places])))
        with torch.no_grad():
            log_p_ORT = speaker.log_probs(rollout, Batch([], torch.from_numpy(places), seen))
        evidence = word_evidence(log_p_ORT, rollout, captioner.tokenizer)
        for r, row in enumerate(block[start - first :], start - first):
            here = evidence.written(r)
            bad = [word for w, word in here if evidence.evidence_RW[r, w] < DOUBT]
            words, doubted = words + len(here), doubted + len(bad)
            if bad:
                spans = tuple((word.start, word.end) for word in bad)
                text = ", ".join(row.text[start:end] for start, end in spans)
                findings.append(Finding("doubtful", row.id, row.text, text, spans))
    return findings, {"doubtful words, %": 100 * doubted / words if words else float("nan")}
