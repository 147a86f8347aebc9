"""Metrics on claims (objects, attributes, relations), verified by references or a scorer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.facts import FINE_KINDS
from tellapart.evaluation.facts.by_scorer import Parts, claim_sentences, verify_scorer, whole_sentences
from tellapart.evaluation.facts.verdict import Verdict
from tellapart.evaluation.metrics.fact_metric import by_references, extractor, fact_metric, rate
from tellapart.language.claim_tuples import CLAIM_KINDS
from tellapart.metrics.metric_info import KIND
from tellapart.metrics.registry import on_request
from tellapart.metrics.slots import CaptionSlot

_NAMES = ("precision", "recall", "f")


def by_scorer(name: str, parts_of: Callable[[str], Parts], context: EvalContext, slot: CaptionSlot) -> list[Verdict]:
    """Scores each claim or sentence by the share of other pictures that, according to the scorer, it fits less well."""
    return context.once(
        ("verdicts", name, id(slot)),
        lambda: verify_scorer(slot.captions, context.images, context.texts.encode, parts_of),
    )


_MEANING = {
    "precision": "% of a caption's claims (objects, attributes, relations) that a reference confirms",
    "recall": "% of the references' facts that captions state",
    "f": "F1 of precision (% of a caption's claims that a reference confirms) and recall (% of the references' facts "
    "that captions state)",
}
for _which, _rate in enumerate(_NAMES):
    fact_metric(
        "facts" if _rate == "f" else f"facts_{_rate}",
        needs=("references",),
        signature=lambda context, rate=_rate: f"{rate},sums|{extractor(context)}|verifier:references",
        label=f"facts, {'F' if _rate == 'f' else _rate} (references)",
        help=_MEANING[_rate],
    )(partial(rate, partial(by_references, ""), _which))
for _kind in (*CLAIM_KINDS, *FINE_KINDS):
    for _which, _rate in enumerate(_NAMES[:2]):
        fact_metric(
            f"facts_{_rate}_{_kind}",
            needs=("references",),
            signature=lambda context, rate=_rate, kind=_kind: (
                f"{rate},sums|kind:{kind}|{extractor(context)}|verifier:references"
            ),
            label=f"{_kind}: {_rate} (references)",
            help=(
                f"% of a caption's claims of this kind ({_kind}) that a reference confirms"
                if _rate == "precision"
                else f"% of the references' facts of this kind ({_kind}) that captions state"
            ),
            group=KIND,
            families=("factskinds",),
        )(partial(rate, partial(by_references, _kind), _which))
fact_metric(
    "facts_scorer",
    needs=("pictures", "scorer", "two"),
    signature=lambda context: (
        f"precision,graded|{extractor(context)}|verifier:scorer,share-of-other-pictures-below|"
        f"scorer:{context.scorer_name()}"
    ),
    label="facts, scorer support",
    help="% of other pictures that, according to the scorer, fit a caption's claims less well than its own picture; "
    "chance is 50",
)(partial(rate, partial(by_scorer, "scorer", claim_sentences), 0))
fact_metric(
    "sentence_support",
    needs=("pictures", "scorer", "two"),
    signature=lambda context: f"mean-over-sentences|share-of-other-pictures-below|scorer:{context.scorer_name()}",
    label="sentences, scorer support",
    help="% of other pictures that, according to the scorer, fit a caption's sentences less well than its own picture; "
    "chance is 50",
    check=on_request,
)(partial(rate, partial(by_scorer, "sentences", whole_sentences), 0))
