"""Evaluation: computes metrics for the captions of one or more systems, with intervals, paired differences and
signatures.

Call `evaluate` from Python. ``tellapart eval`` reads files first (`tellapart.evaluation.run_eval.run_eval`).
`tellapart.metrics.registry` lists metrics and their requirements.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tellapart.evaluation.chosen_metrics import choose
from tellapart.evaluation.comparison import Comparison
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.evaluation.notes import notes_on
from tellapart.evaluation.prepare import make_context
from tellapart.evaluation.retrieval import per_set
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.metric import Metric
from tellapart.metrics.results import Results
from tellapart.metrics.slots import HUMAN, caption_lists
from tellapart.metrics.typical_words import WORDS_KEY, associated_words, tagger_signature
from tellapart.utils.messages import detail

_MARKED_BY = ("facts", "chair", "scorer", "sentences")  # metrics that mark claims on a page, in order of preference


def evaluate(
    systems: Mapping[str, Mapping[str, str | Sequence[str]]], inputs: EvalInputs | None = None, **settings: Any
) -> Results:
    """Evaluates each system's captions (``{system: {id: caption}}``) on the same pictures.

    Pictures are in the order of ``items`` if given, otherwise in the first system's order. A picture can have a list of
    captions: single-caption metrics are averaged over the list, and diversity metrics use all of it. Intervals are 95%
    intervals over pictures. `tellapart.metrics.intervals` computes them, and the signatures name the procedure:
    bootstrap percentiles, Student's t for few pictures, or bounds for rare events.

    inputs: see `EvalInputs`.
    settings: fields of `EvalInputs` as keyword arguments: ``evaluate(systems, references=…, metrics=["cider"])``.

    Raises `UsageError` if systems have different ids, if a metric is unknown, or if a requested metric lacks inputs.
    """
    inputs = replace(inputs or EvalInputs(), **settings)
    context, notes = make_context(systems, inputs)
    chosen, left_out = choose(inputs.metrics, context)
    contexts = {"": context} | {
        name: replace(context, scorer=model, image_ND=features, primary=context)
        for name, (model, features) in inputs.eval_scorers.items()
    }
    captions = {name: own[0].captions for name, own in context.slots.items()}
    results = Results(context.ids, captions=captions, references=context.references, notes=notes + left_out)
    comparison = Comparison(results, context)
    for name, where in contexts.items():
        for metric in chosen.values():
            if not name or metric.for_eval_scorers:
                comparison.add(metric, where, measure(metric, where, results.notes, by=name), scorer=name)
    comparison.finish()
    results.extra |= data_for_pages(context, chosen)
    if inputs.words:
        lists = {name: caption_lists(own) for name, own in context.slots.items()}
        texts = {name: [text for texts in own for text in texts] for name, own in lists.items()}
        results.words = associated_words(texts, inputs.words)
        results.signatures[WORDS_KEY] = f"{WORDS_KEY}|{tagger_signature()}"
    results.notes += notes_on(results, chosen, list(contexts.values()))
    return results


def measure(metric: Metric, context: EvalContext, notes: list[str], by: str = "") -> dict[str, Measurement]:
    """Computes one metric for all systems. Skips systems to which the metric does not apply; for human captions, a note
    says why.

    by: the name of the context's scorer, if it is an additional scorer.
    """
    started, found = time.monotonic(), {}
    for system, slots in context.slots.items():
        if system == HUMAN and (why := _why_not_human(metric, context)):
            notes += [] if why in notes else [why]
        elif (measured := metric.measure(context, slots)) is not None:
            found[system] = measured
    by = f" by {by}" if by else ""
    detail(f"measured {metric.name}{by} of {len(found)} systems in {time.monotonic() - started:.2f} s")
    return found


def _why_not_human(metric: Metric, context: EvalContext) -> str | None:
    """Returns why human captions cannot be scored if the references are the same captions, otherwise None."""
    if "references" not in metric.needs:
        return None
    if "confidences" in metric.needs:
        return f"{HUMAN} has no calibration against references, because its captions are the references themselves"
    if any(not references for slot in context.slots[HUMAN] for references in slot.references or [[]]):
        return (
            f"{HUMAN} cannot be scored by metrics that need references, because some pictures have only one "
            "reference, and that reference is the caption to score"
        )
    return None


def data_for_pages(context: EvalContext, chosen: Iterable[str]) -> dict[str, Any]:
    """Returns the data that galleries and tables need: captions, marked claims, and retrieval results on look-alike
    sets and on sets from files.
    """
    slots, computed = context.slots, {name.rpartition(".")[2] for name in chosen if "." in name}
    all_ids = [*context.ids, *(item.id for item in context.inputs.candidates.items)]
    marks = {
        system: [context.kept(("verdicts", name, id(own[0]))) for name in _MARKED_BY] for system, own in slots.items()
    }
    data: dict[str, Any] = {
        "caption_lists": {name: caption_lists(own) for name, own in slots.items() if len(own) > 1},
        "marks": {name: next((own for own in found if own is not None), ()) for name, found in marks.items()},
        "sets": {
            pools: {name: per_set(context.retrieval(own[0], pools), all_ids) for name, own in slots.items()}
            for pools in context.file_sets
            if pools in computed
        },
    }
    if "lookalike" in computed:
        data["lookalike"] = {name: context.retrieval(own[0], "lookalike") for name, own in slots.items()}
    return data
