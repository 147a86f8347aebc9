"""EMScore against the frames of clips (Shi et al. 2022), ×100 as in paper 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tellapart.evaluation.clip_frames import Frame, frames_seen
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.retrieval import TIE
from tellapart.metrics import em_score
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.registry import context_metric
from tellapart.metrics.slots import CaptionSlot

_PARTS = {
    "emscore_p": ("precision", "precision", "similarity of the caption's words to the frames nearest to them"),
    "emscore_r": ("recall", "recall", "similarity of the clip's frames to the words nearest to them"),
    "emscore_f": ("f", "F", "harmonic mean of EMScore's precision and recall"),
}


def emscore(part: str, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes EMScore's precision, recall or F (`tellapart.metrics.emscore`)."""
    found = context.once(("emscore", id(slot)), lambda: em_score.emscore(*_inputs(context, slot)))
    return Measurement(slot.said_N * 100 * getattr(found, part)[1])


def emscore_ranks(context: EvalContext, slot: CaptionSlot) -> np.ndarray:
    """For each of N captions, counts the clips with a higher EMScore F than the caption's own clip; NaN if F is NaN."""

    def ranks() -> np.ndarray:
        rows = enumerate(em_score.emscore_f_rows(*_inputs(context, slot)))
        return np.array([np.nan if np.isnan(row_M[n]) else (row_M > row_M[n] + TIE).sum() for n, row_M in rows], float)

    return context.once(("emscore ranks", id(slot)), ranks)


def _inputs(context: EvalContext, slot: CaptionSlot) -> tuple[Any, ...]:
    """Returns the features of the captions (N×D), of their tokens and of the clips' frames, and the token weights."""
    scorer, texts = context.loaded_scorer, context.texts
    parts = texts.pieces(slot.captions, "")
    flat = iter(scorer.token_features([piece for pieces in parts for piece in pieces]))
    rows = [[next(flat) for _ in pieces] for pieces in parts]
    token_TD = [np.concatenate([feature_TD for _, feature_TD in row]) for row in rows]
    weight_T, idf = None, context.inputs.emscore_idf
    if idf is not None:
        references = [text for own in context.references or () for text in own]
        documents: Sequence[str] = slot.captions if idf == "captions" else references
        end = scorer.tokenizer.eos_token_id
        assert end is not None, "EMScore requires a text tower that has an end token, such as CLIP's"
        weight = context.once(
            ("idf", id(slot) if idf == "captions" else ""),
            lambda: em_score.token_idf(scorer.tokenize(documents), end, window=scorer.window),
        )
        weight_T = [np.array([weight[t] for ids, _ in row for t in ids]) for row in rows]
    return texts.encode(slot.captions), token_TD, context.once("frames", lambda: _frame_features(context)), weight_T


def _frame_features(context: EvalContext) -> list[np.ndarray]:
    """Returns each clip's L2-normalized frame features, F×D."""
    from tellapart.features import store

    items, scorer = context.items or (), context.loaded_scorer
    count_N = [frames_seen(item, scorer) for item in items]
    frames = [
        replace(item, picture=Frame(item.picture, number, count))
        for item, count in zip(items, count_N, strict=True)
        for number in range(count)
    ]
    flat_FD = np.asarray(store.FeatureStore().features(frames, scorer.encoder))
    return np.split(flat_FD, np.cumsum(count_N)[:-1])


def emscore_variant(context: EvalContext) -> str:
    """Returns EMScore's settings as part of a signature."""
    assert context.items is not None
    frames = ",".join(sorted({str(frames_seen(item, context.loaded_scorer)) for item in context.items}))
    idf = f"{context.inputs.emscore_idf},padding-counted" if context.inputs.emscore_idf else "none"
    if context.inputs.emscore_idf == "references":
        idf += f"|references:{context.references_digest}"
    return f"idf:{idf}|frames:{frames}|tokens:with-start,end"


for _name, (_part, _label, _help) in _PARTS.items():
    context_metric(
        _name,
        needs=("pictures", "clips", "scorer", "tokens"),
        signature=lambda context: f"(coarse+fine)/2x100|{emscore_variant(context)}|scorer:{context.scorer_name()}",
        label=f"EMScore, {_label}",
        help=_help,
        direction="higher",
        group=CLOSE,
        families=("emscore",),
    )(partial(emscore, _part))
