"""Runs ``tellapart eval``: reads the files that its options name, loads the models, and evaluates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tellapart.data import Dataset, open_data
from tellapart.data.caption_files import read_caption_file
from tellapart.errors import UsageError
from tellapart.evaluation.candidate_inputs import read_bag_sets, read_candidates
from tellapart.evaluation.chosen_metrics import ALL, choose, needs_of
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.facts.object_inputs import read_object_inputs
from tellapart.evaluation.judges.captionqa_questions import read_choice_questions
from tellapart.evaluation.matching import match_files, name_systems, read_references, with_ids, with_references
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.prepare import make_context
from tellapart.evaluation.search_queries import read_queries
from tellapart.evaluation.stored_confidences import read_confidences
from tellapart.metrics.results import Results
from tellapart.metrics.typical_words import check_words
from tellapart.utils.messages import say


def check_options(options: EvalOptions) -> None:
    """Raises `UsageError` for an option without another option that it requires."""
    scorer, metrics = options.scorer, options.metrics
    if options.words:
        check_words(len(options.captions or ()) + (options.human is not None))
    if options.eval_scorers and scorer is None:
        raise UsageError("--eval-scorer adds a second scorer; also pass --scorer MODEL")
    names = [Path(name).name for name in options.eval_scorers or ()]
    if double := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"--eval-scorer is given two scorers named '{double[0]}'; rename one of them")
    if scorer is None and (options.bags or options.distractors is not None):
        raise UsageError("--bags and --distractors require a scorer; add --scorer MODEL")
    on_request = {
        "synonyms": (options.synonyms, "chair_i,chair_s"),
        "--llm-judge": (options.llm_judge, "clair"),
    }
    for option, (given, some) in on_request.items():
        if metrics is None and given is not None:
            raise UsageError(
                f"{option} is only used by metrics that must be requested by name; add --metrics {some}, or remove "
                f"{option}"
            )
    if scorer is None and (options.long_texts != "truncate" or options.emscore_idf is not None):
        raise UsageError("long_texts and emscore_idf require a scorer; add --scorer MODEL, or remove these settings")
    if (options.device, options.precision) != ("auto", "auto") and not options.models:
        raise UsageError("--device and --precision require a model; add --scorer MODEL, or remove both options")
    if options.query_encoder is not None and options.queries is None and "query_encoder" not in needs_of(metrics, ALL):
        raise UsageError(
            "query_encoder requires queries or soft claims; add --queries FILE or --metrics capture_soft, or remove "
            "this setting"
        )
    if scorer is not None and options.data is None:
        raise UsageError("a scorer requires pictures; add --data SPEC")


def read_files(options: EvalOptions) -> tuple[dict[str, dict[str, list[str]]], EvalInputs, list[str]]:
    """Reads each system's captions and the other inputs, and returns notes on how the files match. Models are not
    loaded yet, and remain names.
    """
    synonyms, instances = read_object_inputs(options.synonyms, options.instances)
    paths = name_systems(options.captions or ())
    systems = {name: read_caption_file(path) for name, path in paths.items()}
    dataset = None if options.data is None else open_data(options.data)
    sets, set_notes = read_bag_sets(options.bags or (), dataset)
    needed = {id_ for own in sets for id_ in own.asked()}
    kept, references, notes = match_files(
        systems, read_references(options.references), dataset, options.allow_missing, options.min_overlap, needed
    )
    if references is None and dataset is not None and (options.human or "references" in needs_of(options.metrics)):
        kept, lacking = with_references(kept, dataset, options.allow_missing)
        notes += lacking
    ids = list(next(iter(kept.values()), ()))
    if dataset is not None and not systems:  # only human references are scored
        ids = [item.id for item in dataset if (references or {}).get(item.id) or item.references]
    items = with_ids(dataset, ids)
    candidates = read_candidates(sets, options.distractors, ids, dataset)
    questions, question_notes = read_choice_questions(options.questions, ids, items)
    queries, query_notes = read_queries(options.queries, ids, items)
    inputs = EvalInputs(
        **options.settings(),
        items=items,
        references=references,
        scorer=options.scorer,
        language_model=options.language_model,
        text_encoder=options.bertscore,
        query_encoder=options.query_encoder,
        candidates=candidates,
        synonyms=synonyms,
        instances=instances,
        judge=options.llm_judge,
        questions=questions,
        queries=queries,
        confidences=read_confidences(paths, ids, items) if "confidences" in needs_of(options.metrics, ALL) else {},
    )
    return kept, inputs, [*notes, *set_notes, *candidates.notes, *question_notes, *query_notes]


def run_eval(options: EvalOptions) -> Results:
    """Evaluates caption files; each file is a system.

    Matches captions with pictures or references by id, file name, stem or position (`tellapart.data.caption_matching`).
    The results' notes say how captions were matched and what was left out; ``hardware`` says where models ran.
    """
    check_options(options)
    kept, inputs, notes = read_files(options)
    try:
        choose(inputs.metrics, make_context(kept, inputs)[0])  # raises errors before any slow work
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
