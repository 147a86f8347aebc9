"""Runs ``tellapart eval``: turns its options into results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tellapart.data import Dataset
from tellapart.errors import UsageError
from tellapart.evaluation.chosen_metrics import choose
from tellapart.evaluation.eval_files import read_files
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.prepare import make_context
from tellapart.metrics.results import Results
from tellapart.metrics.typical_words import check_words
from tellapart.utils.messages import say


def check_options(options: EvalOptions) -> None:
    """Raises `UsageError` for an option without another option that it requires."""
    scorer, metrics = options.scorer, options.metrics
    if options.eval_scorers and scorer is None:
        raise UsageError("--eval-scorer adds a second scorer; also pass --scorer MODEL")
    named_only = (
        ("synonyms", options.synonyms, "chair_i,chair_s"),
        ("--llm-judge", options.llm_judge, "clair"),
    )
    for option, given, some in named_only:
        if metrics is None and given is not None:
            raise UsageError(
                f"{option} is only used by metrics that must be requested by name; add --metrics {some}, "
                f"or remove {option}"
            )
    if options.words:
        check_words(len(options.captions or ()) + (options.human is not None))
    if scorer is None and (options.long_texts != "truncate" or options.emscore_idf is not None):
        raise UsageError("long_texts and emscore_idf require a scorer; add --scorer MODEL, or remove these settings")
    if (options.device, options.precision) != ("auto", "auto") and not options.models:
        raise UsageError("--device and --precision require a model; add --scorer MODEL, or remove both options")
    if options.query_encoder is not None and options.queries is None and "capture_soft" not in (metrics or ""):
        raise UsageError(
            "query_encoder requires queries or soft claims; add --queries FILE or --metrics capture_soft, or "
            "remove this setting"
        )
    if scorer is not None and options.data is None:
        raise UsageError("a scorer requires pictures; add --data SPEC")


def check_metrics(kept: Mapping[str, Mapping[str, Sequence[str]]], inputs: EvalInputs) -> None:
    """Raises `UsageError`, before any slow work, for unknown metrics and for metrics with missing requirements."""
    choose(inputs.metrics, make_context(kept, inputs)[0])


def run_eval(options: EvalOptions) -> Results:
    """Evaluates caption files; each file is a system.

    Matches captions with pictures or references by id, file name, stem or position (`tellapart.data.caption_matching`).
    The results' notes say how captions were matched and what was left out; ``hardware`` says where models ran.
    """
    check_options(options)
    kept, inputs, notes = read_files(options)
    try:
        check_metrics(kept, inputs)
        hardware: dict[str, str] = {}
        if options.models:
            from tellapart.evaluation.models import load_models

            inputs, hardware = load_models(options, inputs, notes)
        else:
            inputs = replace(inputs, judge=options.judge.open())
        if inputs.items is not None:
            kept = {name: {item.id: own[item.id] for item in inputs.items} for name, own in kept.items()}
        results = evaluate(kept, inputs)
    except UsageError:
        for note in inputs.items.report() if isinstance(inputs.items, Dataset) else ():  # may be about missing pictures
            say(note)
        raise
    results.notes[:0] = notes
    results.extra["items"] = inputs.items
    results.hardware = hardware
    return results
