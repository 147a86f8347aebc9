"""Evaluation: computes metrics for the captions of one or more systems, with intervals, paired differences and
signatures.

Call `evaluate` from Python. ``tellapart eval`` reads files first (`tellapart.evaluation.run_eval.run_eval`).
`tellapart.metrics.registry` lists metrics and their requirements.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tellapart.evaluation.chosen_metrics import choose
from tellapart.evaluation.comparison import Comparison
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.evaluation.judges.judge import Judge
from tellapart.evaluation.kept_for_pages import keep_for_pages
from tellapart.evaluation.notes import (
    notes_on_cider,
    notes_on_confidences,
    notes_on_cut_texts,
    notes_on_pairing,
    notes_on_queries,
)
from tellapart.evaluation.prepare import make_context
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.metric import Metric
from tellapart.metrics.results import Results
from tellapart.metrics.slots import HUMAN, CaptionSlot, caption_lists
from tellapart.metrics.typical_words import WORDS_KEY, associated_words, tagger_signature
from tellapart.utils.messages import detail


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
    context, slots, notes = make_context(systems, inputs)
    chosen, left_out = choose(inputs.metrics, context)
    contexts = {"": context} | {
        name: replace(context, scorer=model, image_ND=features, primary=context)
        for name, (model, features) in inputs.eval_scorers.items()
    }
    captions = {name: own[0].captions for name, own in slots.items()}
    results = Results(context.ids, captions=captions, references=context.references, notes=notes + left_out)
    comparison = Comparison(results, slots, inputs)
    for name, where in contexts.items():
        for metric in chosen.values():
            if not name or metric.for_eval_scorers:
                comparison.add(metric, where, measure(metric, where, slots, results.notes, by=name), scorer=name)
    comparison.finish()
    keep_for_pages(results, context, list(chosen), slots)
    if inputs.words:
        texts = {name: [text for texts in caption_lists(own) for text in texts] for name, own in slots.items()}
        results.words = associated_words(texts, inputs.words)
        results.signatures[WORDS_KEY] = f"{WORDS_KEY}|{tagger_signature()}"
    results.notes += notes_on_pairing(results, context.references)
    results.notes += notes_on_queries(results, context)
    results.notes += notes_on_cider(chosen, context)
    results.notes += notes_on_confidences(context)
    results.notes += inputs.judge.notes() if isinstance(inputs.judge, Judge) else []
    results.notes += notes_on_cut_texts(contexts.values())
    return results


def measure(
    metric: Metric, context: EvalContext, slots: Mapping[str, list[CaptionSlot]], notes: list[str], by: str = ""
) -> dict[str, Measurement]:
    """Computes one metric for all systems. Skips systems to which the metric does not apply; for human captions, a note
    says why.

    by: the name of the context's scorer, if it is an additional scorer.
    """
    started = time.monotonic()
    found = {
        system: measured
        for system, own in slots.items()
        if not (system == HUMAN and lacks_references(metric, own, notes))
        and (measured := metric.measure(context, own)) is not None
    }
    by = f" by {by}" if by else ""
    detail(f"measured {metric.name}{by} of {len(found)} systems in {time.monotonic() - started:.2f} s")
    return found


def lacks_references(metric: Metric, slots: list[CaptionSlot], notes: list[str]) -> bool:
    """Returns whether human captions cannot be scored because the references are the same captions."""
    if "references" not in metric.needs:
        return False
    if "confidences" in metric.needs:
        note = f"{HUMAN} has no calibration against references, because its captions are the references themselves"
    elif any(not references for slot in slots for references in slot.references or [[]]):
        note = (
            f"{HUMAN} cannot be scored by metrics that need references, because some pictures have only one "
            "reference, and that reference is the caption to score"
        )
    else:
        return False
    if note not in notes:
        notes.append(note)
    return True
