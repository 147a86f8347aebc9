"""The data that an evaluation keeps for galleries and tables: all captions, marked claims, and retrieval results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.facts.verdict import Verdict
from tellapart.evaluation.retrieval import per_set
from tellapart.metrics.results import Results
from tellapart.metrics.slots import CaptionSlot, caption_lists

_MARKED_BY = ("facts", "chair", "scorer", "sentences")  # metrics that mark claims on a page, in order of preference


def keep_for_pages(
    results: Results, context: EvalContext, chosen: Sequence[str], slots: Mapping[str, list[CaptionSlot]]
) -> None:
    """Stores the data that galleries and tables need: captions, marked claims, and retrieval results on
    look-alike sets and on sets from files.
    """
    results.extra["caption_lists"] = {name: caption_lists(own) for name, own in slots.items() if len(own) > 1}
    results.extra["marks"] = {name: marks_of(context, own[0]) for name, own in slots.items()}
    if any(name.endswith(".lookalike") for name in chosen):
        results.extra["lookalike"] = {name: context.retrieval(own[0], "lookalike") for name, own in slots.items()}
    all_ids = [*context.ids, *(item.id for item in context.inputs.candidates.items)]
    results.extra["sets"] = {
        pools: {name: per_set(context.retrieval(own[0], pools), all_ids) for name, own in slots.items()}
        for pools in context.file_sets
        if any(name.endswith(f".{pools}") for name in chosen)
    }


def marks_of(context: EvalContext, slot: CaptionSlot) -> Sequence[Verdict]:
    """Returns the verdicts that a metric computed on a slot's captions, or () if no metric computed any."""
    found = (context.kept(("verdicts", name, id(slot))) for name in _MARKED_BY)
    return next((verdicts for verdicts in found if verdicts is not None), ())
