"""Reads the files and specifications that ``tellapart eval`` is given. Does not load models, which remain names."""

from __future__ import annotations

from tellapart.data import open_data
from tellapart.data.caption_files import read_caption_file
from tellapart.evaluation.candidate_files import read_bag_sets, read_candidates
from tellapart.evaluation.chosen_metrics import ALL, needs_of
from tellapart.evaluation.claim_confidences import read_confidences
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.evaluation.facts.object_inputs import read_object_inputs
from tellapart.evaluation.judges.caption_qa import read_choice_questions
from tellapart.evaluation.matching import match_files, name_systems, read_references, with_ids, with_references
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.search_queries import read_queries


def read_files(options: EvalOptions) -> tuple[dict[str, dict[str, list[str]]], EvalInputs, list[str]]:
    """Reads each system's captions and the other inputs, and returns notes on how the files match. Models are not
    loaded yet.
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
    candidates = read_candidates(sets, options.distractors, ids, dataset, options.scorer)
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
