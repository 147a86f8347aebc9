"""Metrics on claims (objects, attributes, relations), verified by references, a scorer, or a scene's ground truth.

References and scorers use the same extractor (`tellapart.language.claims`); scenes have their own parser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version

import numpy as np

from tellapart.evaluation.context import EvalContext, names_in
from tellapart.evaluation.facts import FINE_KINDS, check_tagger
from tellapart.evaluation.facts.by_references import unmatched_claims, verify_references
from tellapart.evaluation.facts.by_scorer import verify_scorer, whole_sentences
from tellapart.evaluation.facts.chair import Chair
from tellapart.evaluation.facts.verdict import Verdict, rate_statistic, rates
from tellapart.language.claim_tuples import CLAIM_KINDS
from tellapart.metrics.corpus_scores import PERCENT, Measurement, Sums
from tellapart.metrics.registry import context_metric
from tellapart.metrics.results import CLOSE, KIND, TRUTH
from tellapart.metrics.slots import CaptionSlot
from tellapart.scenes import scene_graph
from tellapart.scenes.truth import ClaimCounts, KindCounts
from tellapart.utils.progress import track
from tellapart.utils.registry import Direction

Verify = Callable[[EvalContext, CaptionSlot], "list[Verdict]"]
_NAMES = ("precision", "recall", "f")
_CAPTURE_WEIGHTS = {"object": 5, "attribute": 5, "relation": 2}  # CAPTURE's (Dong et al. 2024)


def by_references(context: EvalContext, slot: CaptionSlot) -> list[Verdict]:
    """Verifies claims against references: a claim is true if a reference makes it."""
    return _each(context, slot, "facts", partial(verify_references, synonyms=context.inputs.synonyms))


def by_references_of(kind: str, context: EvalContext, slot: CaptionSlot) -> list[Verdict]:
    """Verifies claims of one kind against references; see `by_references`."""
    verify = partial(verify_references, synonyms=context.inputs.synonyms, kinds=(kind,))
    return _each(context, slot, f"facts:{kind}", verify)


def by_objects(context: EvalContext, slot: CaptionSlot) -> list[Verdict]:
    """Verifies objects like CHAIR: against those in the references and, if given, in COCO's instances."""
    chair = Chair(context.inputs.synonyms, context.inputs.instances)
    names = iter(names_in(context.inputs.instances, context.ids, context.items))
    return _each(context, slot, "chair", lambda caption, references: chair.verify(caption, references, next(names)))


def by_scorer(context: EvalContext, slot: CaptionSlot) -> list[Verdict]:
    """Scores each claim by the share of other pictures that it fits worse, according to the scorer."""
    return context.once(
        ("verdicts", "scorer", id(slot)),
        lambda: verify_scorer(slot.captions, context.images, context.texts.encode),
    )


def by_sentences(context: EvalContext, slot: CaptionSlot) -> list[Verdict]:
    """Scores the caption's sentences instead of its claims; see `by_scorer`."""
    return context.once(
        ("verdicts", "sentences", id(slot)),
        lambda: verify_scorer(slot.captions, context.images, context.texts.encode, whole_sentences),
    )


def _each(
    context: EvalContext, slot: CaptionSlot, name: str, verify: Callable[[str, Sequence[str]], Verdict]
) -> list[Verdict]:
    pairs = list(zip(slot.captions, slot.references or [], strict=True))
    return context.once(
        ("verdicts", name, id(slot)),
        lambda: [verify(caption, references) for caption, references in track(pairs, label="extracting claims")],
    )


def rate(verify: Verify, which: int, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes precision, recall or F, × 100. The corpus value divides counts that are summed over captions."""
    verdicts = verify(context, slot)
    counts_N4 = np.array([verdict.counts() for verdict in verdicts])
    return Measurement(100 * rates(verdicts)[:, which], rate_statistic(counts_N4, which))


def _extractor(context: EvalContext) -> str:

    named = f"|synonyms:{context.inputs.synonyms.name}" if context.inputs.synonyms else "|synonyms:none"
    return f"claims:objects,attributes,relations|extractor:rules-1,HanTa-{version('HanTa')}{named}"


def _nothing_missing() -> None:
    """Checks nothing. Metrics with a check run only on request; metrics that need no tagger have this one."""


fact_metric = partial(context_metric, direction="higher", group=CLOSE, check=check_tagger, bounds=PERCENT)

_MEANING = {
    "precision": "% of a caption's claims (objects, attributes, relations) that a reference confirms",
    "recall": "% of the references' facts that captions state",
    "f": "F1 of precision (claims of captions that a reference confirms) and recall (share of the references' facts "
    "that captions state)",
}
for _which, _rate in enumerate(_NAMES):
    fact_metric(
        "facts" if _rate == "f" else f"facts_{_rate}",
        needs=("references",),
        signature=lambda context, rate=_rate: f"{rate},sums|{_extractor(context)}|verifier:references",
        label=f"facts, {'F' if _rate == 'f' else _rate} (references)",
        help=_MEANING[_rate],
    )(partial(rate, by_references, _which))
for _kind in (*CLAIM_KINDS, *FINE_KINDS):
    for _which, _rate in enumerate(_NAMES[:2]):
        fact_metric(
            f"facts_{_rate}_{_kind}",
            needs=("references",),
            signature=lambda context, rate=_rate, kind=_kind: (
                f"{rate},sums|kind:{kind}|{_extractor(context)}|verifier:references"
            ),
            label=f"{_kind}: {_rate} (references)",
            help=(
                f"% of a caption's claims of this kind ({_kind}) that a reference confirms"
                if _rate == "precision"
                else f"% of the references' facts of this kind ({_kind}) that captions state"
            ),
            group=KIND,
            families=("factskinds",),
        )(partial(rate, partial(by_references_of, _kind), _which))
fact_metric(
    "facts_scorer",
    needs=("pictures", "scorer", "two"),
    signature=lambda context: (
        f"precision,graded|{_extractor(context)}|verifier:scorer,share-of-other-pictures-below|"
        f"scorer:{context.scorer_name()}"
    ),
    label="facts, support by the scorer",
    help="% of other pictures that fit a caption's claims less well than its own, by the scorer; chance is 50",
)(partial(rate, by_scorer, 0))
fact_metric(
    "sentence_support",
    needs=("pictures", "scorer", "two"),
    signature=lambda context: f"mean-over-sentences|share-of-other-pictures-below|scorer:{context.scorer_name()}",
    label="sentences, support by the scorer",
    help="% of other pictures that fit a caption's sentences less well than its own, by the scorer; chance is 50",
    check=_nothing_missing,
)(partial(rate, by_sentences, 0))


@fact_metric(
    "capture_like",
    needs=("references",),
    signature=lambda context: f"(5f.objects+5f.attributes+2f.relations)/12|{_extractor(context)}|match:lemma,synonym",
    label="CAPTURE-like",
    help="F1 of objects, attributes and relations against the references', weighted 5:5:2 as in CAPTURE",
)
def capture_like(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes (5 F of objects + 5 F of attributes + 2 F of relations) / 12 × 100 against the references' claims.

    Uses CAPTURE's weights but a different parser. `capture_soft` adds CAPTURE's soft matching.
    """
    return _capture({kind: by_references_of(kind, context, slot) for kind in _CAPTURE_WEIGHTS})


def _capture(verdicts: Mapping[str, Sequence[Verdict]]) -> Measurement:
    value_N = np.zeros(len(verdicts["object"]))
    for kind, weight in _CAPTURE_WEIGHTS.items():
        # If neither side has claims of a kind, the sides agree on it.
        f_N = [v.f if v.expected else float(not v.claims) for v in verdicts[kind]]
        value_N += weight * np.array(f_N)
    return Measurement(100 * value_N / sum(_CAPTURE_WEIGHTS.values()))


@fact_metric(
    "capture_soft",
    needs=("references", "query_encoder"),
    signature=lambda context: (
        f"(5f.objects+5f.attributes+2f.relations)/12|{_extractor(context)}|match:lemma,synonym,cosine|"
        f"{context.loaded_query_encoder.signature}"
    ),
    label="CAPTURE-like, soft",
    help="capture_like with soft matching: a claim that no reference makes counts with its cosine to the "
    "nearest unmatched claim",
)
def capture_soft(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes `capture_like` with CAPTURE's soft matching of unmatched claims by similarity of meaning.

    A sentence encoder embeds the unmatched claims ("brown dog", "dog on sofa") of each side. For precision, an
    unmatched claim of the caption counts with its largest cosine, 0..1, to the references' unmatched claims; for
    recall, vice versa.
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


def _objects(context: EvalContext) -> str:
    both = f"references,instances@{context.instances_digest}" if context.inputs.instances else "references"
    return f"objects:{both}|synonyms:{context.inputs.synonyms.name}"


chair_metric = partial(fact_metric, needs=("references", "synonyms"), check=_nothing_missing)


@chair_metric(
    "chair_i",
    signature=lambda context: f"wrong/named,sums|{_objects(context)}",
    label="CHAIR_i",
    help="% of objects in captions that the references (and instances) do not contain",
    direction="lower",
    aliases=("chair",),
)
def chair_i(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes the percentage of hallucinated objects, from counts summed over captions."""
    verdicts = by_objects(context, slot)
    wrong_N4 = np.array([(v.claims - v.correct, v.claims, 0.0, 0.0) for v in verdicts])
    return Measurement(100 * (1 - rates(verdicts)[:, 0]), rate_statistic(wrong_N4, 0))


@chair_metric(
    "chair_s",
    signature=lambda context: f"captions-with-a-wrong-one|{_objects(context)}",
    label="CHAIR_s",
    help="% of captions with an object that the references (and instances) do not contain",
    direction="lower",
)
def hallucinates(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Returns 100 for a caption with a hallucinated object, else 0."""
    return Measurement(np.array([100.0 * (v.correct < v.claims) for v in by_objects(context, slot)]))


chair_metric(
    "chair_coverage",
    signature=lambda context: f"named/there,sums|{_objects(context)}",
    label="coverage",
    help="% of the references' (and instances') objects that captions mention",
    aliases=("coverage", "cover"),
)(partial(rate, by_objects, 1))


# Metrics that use the exact ground truth of `scenes`: precision, recall, hallucination, binding, scene-graph F.


def truth_rate(above: str, below: str, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes the ratio of two `scenes.truth.ClaimCounts` fields, summed over captions, in percent."""
    return _truth_rate(above, below, context.claim_counts(slot))


def _truth_rate(above: str, below: str, counts: Sequence[ClaimCounts | KindCounts]) -> Measurement:
    counts_N2 = np.array([(getattr(c, above), getattr(c, below)) for c in counts], dtype=float)
    with np.errstate(invalid="ignore"):
        value_N = 100 * counts_N2[:, 0] / counts_N2[:, 1]
    return Measurement(value_N, percentage(counts_N2))


def percentage(counts_N2: np.ndarray) -> Sums:
    """Computes 100 · summed first count / summed second count; NaN if the second is 0."""
    return Sums(counts_N2, _percent, bounds=(0.0, 100.0))


def _percent(counts_R2: np.ndarray) -> np.ndarray:
    above_R, below_R = counts_R2[..., 0], counts_R2[..., 1]
    return np.where(below_R > 0, 100 * above_R / np.where(below_R > 0, below_R, 1), np.nan)


_RATES: dict[str, tuple[str, str, str, str, Direction]] = {
    "attribute_precision": (
        "correct", "claims", "attribute precision", "% of a caption's claims that are true of the picture",
        "higher",
    ),
    "attribute_recall": (
        "recalled", "attributes", "attribute recall", "% of the picture's facts that captions state", "higher",
    ),
    "hallucination_rate": (
        "hallucinations", "claims", "hallucination", "% of a caption's claims whose value is nowhere in the picture",
        "lower",
    ),
    "binding_error_rate": (
        "binding_errors", "bound", "wrong bindings",
        "% of a caption's attributes that belong to another object in the picture", "lower",
    ),
}  # fmt: skip
for _name, (_above, _below, _label, _help, _better) in _RATES.items():
    context_metric(
        _name,
        needs=("truth",),
        signature=f"sum({_above})/sum({_below})|truth:scenes",
        label=_label,
        help=_help,
        direction=_better,
        group=TRUTH,
        aliases=("hallucination",) if _name == "hallucination_rate" else (),
    )(partial(truth_rate, _above, _below))


def kind_rate(above: str, below: str, kind: str, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes `truth_rate` for claims of one kind in `scenes.truth.FACT_KINDS`."""
    kinds = [c.kinds[kind] for c in context.claim_counts(slot)]
    return _truth_rate(above, below, kinds)


_KIND_NAMES = {"shape": "object", "number": "count"}  # as in `facts_recall_object` and similar names
for _kind in ("shape", "colour", "size", "texture", "motion", "relation", "ground", "number"):
    for _name in ("attribute_precision", "attribute_recall"):
        if (_kind, _name) == ("number", "attribute_recall"):
            continue  # recall is undefined, because "three things" states no fact of its own
        _above, _below, _label, _help, _better = _RATES[_name]
        _shown = _KIND_NAMES.get(_kind, _kind)
        context_metric(
            f"{_name}_{_shown}",
            needs=("truth", "clips") if _kind == "motion" else ("truth",),
            signature=f"sum({_above})/sum({_below})|kind:{_kind}|truth:scenes",
            label=f"{_shown}: {_label.removeprefix('attribute ')} ",
            help=f"{_help}; only claims of this kind: {_shown}",
            direction=_better,
            group=KIND,
            bounds=PERCENT,
            families=("attributekinds",),
        )(partial(kind_rate, _above, _below, _kind))


@context_metric(
    "scene_graph_f",
    needs=("truth",),
    signature="f1|tuples:objects,attributes,relations,ground|truth:scenes",
    label="scene graph, F",
    help="F1 of objects, attributes and relations that caption and picture share",
    direction="higher",
    group=TRUTH,
    bounds=PERCENT,
)
def scene_graph_f(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes SPICE-like F of scene-graph tuples × 100, with the scene's ground truth as reference."""
    assert context.items is not None
    pairs = zip(slot.captions, context.items, strict=True)
    return Measurement(np.array([100 * scene_graph.scene_graph_f(caption, item.truth).f for caption, item in pairs]))
