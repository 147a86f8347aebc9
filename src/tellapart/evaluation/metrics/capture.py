"""CAPTURE (Dong et al. 2024) with a different parser: the F-score of objects, attributes and relations,
compared with the references.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.facts.unmatched_claims import unmatched_claims
from tellapart.evaluation.facts.verdict import Verdict, rates
from tellapart.evaluation.metrics.fact_metric import by_references, extractor, fact_metric
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.slots import CaptionSlot
from tellapart.utils.progress import track

_CAPTURE_WEIGHTS = {"object": 5, "attribute": 5, "relation": 2}  # the weights in CAPTURE (Dong et al. 2024)


@fact_metric(
    "capture_like",
    needs=("references",),
    signature=lambda context: f"(5f.objects+5f.attributes+2f.relations)/12|{extractor(context)}|match:lemma,synonym",
    label="CAPTURE-like",
    help="F1 of objects, attributes and relations compared with the references, weighted 5:5:2 as in CAPTURE",
)
def capture_like(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes (5 F(objects) + 5 F(attributes) + 2 F(relations)) / 12 × 100, compared with the references' claims.

    Uses CAPTURE's weights but a different parser. `capture_soft` adds CAPTURE's soft matching.
    """
    return _capture({kind: by_references(kind, context, slot) for kind in _CAPTURE_WEIGHTS})


def _capture(verdicts: Mapping[str, Sequence[Verdict]]) -> Measurement:
    value_N = np.zeros(len(verdicts["object"]))
    for kind, weight in _CAPTURE_WEIGHTS.items():
        f_N = rates(verdicts[kind])[:, 2]  # NaN if the references make no claim of this kind
        # If neither the caption nor the references make a claim of this kind, they agree.
        agree_N = [float(not verdict.claims) for verdict in verdicts[kind]]
        value_N += weight * np.where(np.isnan(f_N), agree_N, f_N)
    return Measurement(100 * value_N / sum(_CAPTURE_WEIGHTS.values()))


@fact_metric(
    "capture_soft",
    needs=("references", "query_encoder"),
    signature=lambda context: (
        f"(5f.objects+5f.attributes+2f.relations)/12|{extractor(context)}|match:lemma,synonym,cosine|"
        f"{context.loaded_query_encoder.signature}"
    ),
    label="CAPTURE-like, soft",
    help="capture_like with soft matching: a claim without an exact match counts as its cosine to the "
    "nearest unmatched claim",
)
def capture_soft(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes `capture_like` with CAPTURE's soft matching, which compares unmatched claims by meaning.

    A sentence encoder embeds the unmatched claims ("brown dog", "dog on sofa") of the caption and of the references.
    For precision, an unmatched claim in the caption counts as its largest cosine, 0..1, with an unmatched claim in the
    references; for recall, vice versa.
    """
    pairs = list(zip(slot.captions, slot.references or [], strict=True))
    left = [
        {kind: unmatched_claims(caption, references, context.inputs.synonyms, kind) for kind in _CAPTURE_WEIGHTS}
        for caption, references in track(pairs, label="extracting claims")
    ]
    texts = list(
        dict.fromkeys(text for own in left for one in own.values() for side in (one.made, one.known) for text in side)
    )
    feature_MD = context.loaded_query_encoder.features(texts) if texts else np.zeros((0, 1))
    row = {text: number for number, text in enumerate(texts)}
    return _capture({kind: [own[kind].verdict(feature_MD, row) for own in left] for kind in _CAPTURE_WEIGHTS})
