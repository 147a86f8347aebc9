"""Computes how much each content word in a gallery's captions helps the scorer, and how confident the captioner is in
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tellapart.captioners import Captioner
from tellapart.models.training_mode import in_mode
from tellapart.rewards.paid_words import JudgedWords, PaidWords, WordEffects
from tellapart.rewards.speaker import Speaker
from tellapart.scorers import Scorer
from tellapart.types import Batch, Rows


def add_word_values(
    sets: dict[str, Any],
    ids: Sequence[str],
    scorer: Scorer,
    features_ND: np.ndarray,
    speaker: Captioner,
    visual: Rows,
) -> None:
    """Adds ``"words": [[start, end, worth, belief]]`` to every caption in a gallery, as in `rewards.paid_words`.

    start, end: the word's position in the caption, in characters.
    worth: how far, in nats, the scorer's log-probability of the target among the set's candidates drops when the word's
        claim is removed.
    belief: the confidence in the word, 0 to 1, computed from ``speaker``'s log-probability of the word, the word's
        mutual information with the picture, and the drop among the gallery's targets.
    features_ND, visual: the inputs of the scorer and of ``speaker`` for all N test pictures, in the order of ``ids``.

    Does not use ground truth. Leaves a gallery with fewer than two sets unchanged, because mutual information compares
    pictures.
    """
    entries = sets["sets"]
    if len(entries) < 2:
        return
    row_of = {key: row for row, key in enumerate(ids)}
    rows_B = np.array([row_of[entry["target"]] for entry in entries])
    others = [[row_of[key] for key in entry["candidates"] if key != entry["target"]] for entry in entries]
    near_BK = np.array([rows[: min(map(len, others))] for rows in others], np.int64)  # K is 0 if all are copies
    effects = WordEffects(scorer, features_ND, lambda rows_B: near_BK)
    judge = PaidWords(effects, Speaker(speaker))
    seen = speaker.inputs(torch.as_tensor(np.ascontiguousarray(visual[rows_B])))
    batch = Batch([], torch.from_numpy(rows_B), seen)
    for name in entries[0]["systems"]:
        answers = [entry["systems"][name] for entry in entries]
        judged = _judged(judge, speaker, [answer["caption"] for answer in answers], batch)
        for r, answer in enumerate(answers):
            answer["words"] = [
                [word.start, word.end, round(float(judged.near_RW[r, w]), 3), round(float(judged.gate_RW[r, w]), 3)]
                for w, word in judged.words.written(r)
            ]


def _judged(judge: PaidWords, speaker: Captioner, texts: list[str], batch: Batch) -> JudgedWords:
    with torch.no_grad(), in_mode(speaker.model, training=False):
        return judge.judge(speaker.rollout_of(texts), batch)
