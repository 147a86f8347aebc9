"""``tellapart eval``: files, specifications and model names, read, matched by their ids, and measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tellapart.data import Dataset, Skipped, open_data
from tellapart.data.caption_files import read_caption_file, read_reference_file
from tellapart.data.caption_matching import (
    CaptionFile,
    KnownIds,
    align_lists,
    check_overlap,
    match_captions,
    match_ids,
    report_problems,
    with_text,
)
from tellapart.data.new_pictures import beside
from tellapart.data.selection import is_id_list
from tellapart.data.specification import listed
from tellapart.errors import UsageError
from tellapart.evaluation import test_sets
from tellapart.evaluation.context import CandidateInputs, EvalInputs
from tellapart.evaluation.evaluate import choose, evaluate, make_context
from tellapart.evaluation.facts import verify
from tellapart.evaluation.judges.judge import ChoiceQuestion, read_questions
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.test_sets import FileSets
from tellapart.language.claims import Synonyms
from tellapart.metrics.registry import METRICS, resolve
from tellapart.metrics.results import Results
from tellapart.metrics.words import check_words
from tellapart.types import Item
from tellapart.utils.messages import detail, say

if TYPE_CHECKING:
    import torch

    from tellapart.scorers import Scorer

M = TypeVar("M")

# Caption files, references and data of an evaluation, matched by the ids that all have.


def name_systems(paths: Sequence[Path]) -> dict[str, Path]:
    """Systems are called by the stem of their file, with as many folders before it as tell them apart.

    Raises `UsageError` for one file twice, and for files of one stem in one folder.
    """
    whole = [Path(path).absolute().with_suffix("").parts for path in paths]
    for parts in range(1, max(map(len, whole), default=1) + 1):
        names = {"/".join(each[-parts:]): Path(path) for each, path in zip(whole, paths, strict=True)}
        if len(names) == len(paths):
            return names
    raise UsageError("two caption files have the same name; rename one, for a system is named after its file")


def read_references(paths: Path | Sequence[Path] | None) -> CaptionFile | None:
    """The references of every id, of all files together; None where there is no file."""
    files = [read_reference_file(path) for path in ([paths] if isinstance(paths, str | Path) else paths or ())]
    files.sort(key=lambda file: file.numbered)  # those with ids first: lines are matched with them by their place
    if len(files) < 2:
        return files[0] if files else None
    whole = CaptionFile("the references", {}, {}, numbered=all(file.numbered for file in files))
    for file in files:
        known = KnownIds(files[0].name, list(whole.texts), whole.files, whole.numbered)
        texts_of = match_captions(file, known, file.name).texts if whole.texts else file.texts
        for id_, texts in texts_of.items():
            whole.texts.setdefault(id_, []).extend(texts)
        whole.files.update(file.files)
    return whole


def match_files(
    systems: Mapping[str, CaptionFile],
    references: CaptionFile | None,
    dataset: Dataset | None,
    allow_missing: bool,
    min_overlap: float,
    needed: Collection[str] = (),
) -> tuple[dict[str, dict[str, list[str]]], dict[str, list[str]] | None, list[str]]:
    """Captions and references by the ids that all have; `UsageError` where some differ and may not.

    The ids are those of the data, else of the references, else of the first system. The notes say how files that name
    pictures differently were matched. ``needed``: the pictures that candidate sets ask for; ``min_overlap`` is a share
    of them then, not of all pictures of the data.
    """
    notes = dataset.report() if dataset is not None else []
    if references is not None:
        texts, empty = with_text(references.texts)
        references, notes = replace(references, texts=texts), notes + empty
    known_references = None if references is None else references.texts
    if dataset is not None:
        known = KnownIds("the data", [item.id for item in dataset], _files(dataset))
        if references is not None:
            matched = match_captions(references, known, "references")
            known_references, notes = matched.texts, notes + _note(matched.how)
    else:
        first = references or next(iter(systems.values()), CaptionFile("", {}))
        whose = "the references" if references is not None else "the first caption file"
        known = KnownIds(whose, list(first.texts), first.files, first.numbered)
    ids = [key for key in known.ids if known_references is None or known_references.get(key)]
    if known_references is not None:
        if dataset is not None:
            check_overlap(len(ids), len(known.ids), "references", known.name, min_overlap)
        lacking = [key for key in known.ids if not known_references.get(key)]
        what = "pictures of the data have no reference" if dataset is not None else "entries have no text"
        notes += report_problems({what: lacking}, "references", allow_missing)
    matches = {name: match_captions(file, known, name) for name, file in systems.items()}
    if dataset is not None and (lost := _unreadable(dataset, ids, [own.texts for own in matches.values()])):
        notes.append(dataset.unreadable.line(len(dataset)) or "")
        ids = [key for key in ids if key not in lost]
        matches = {name: replace(own, texts=_without(own.texts, lost)) for name, own in matches.items()}
    kept = {}
    for name, file in systems.items():
        matched = matches[name]
        detail(matched.how or f"{name}: {len(file.texts)} ids matched with {known.name} as they stand")
        kept[name], more = align_lists(matched.texts, ids, allow_missing, name, known.name, min_overlap, needed)
        notes += [*_note(matched.how), *more]
    common = [key for key in ids if all(key in captions for captions in kept.values())]
    if not common and systems:
        raise UsageError("no picture has a caption of every system; give caption files about the same pictures")
    for name, own in kept.items():
        check_overlap(len(common), len(own), name, "the other systems", min_overlap)
    return {name: {key: own[key] for key in common} for name, own in kept.items()}, known_references, notes


def _unreadable(dataset: Dataset, ids: Sequence[str], captions: Sequence[Mapping[str, list[str]]]) -> set[str]:
    """The ids that some system has no caption of because the picture cannot be read: `caption` left them out.

    Pictures are opened only where most have captions: else the files are about other ones, which is said elsewhere.
    """
    lacking = {key for key in ids if not all(texts.get(key) for texts in captions)}
    if 2 * len(lacking) > len(ids):
        return set()
    return {item.id for item in dataset if item.id in lacking and dataset.load_image(item) is None}


def _without(texts: dict[str, list[str]], ids: set[str]) -> dict[str, list[str]]:
    return {key: own for key, own in texts.items() if key not in ids}


def _files(dataset: Iterable[Item]) -> dict[str, str]:
    """The file of each picture that is one."""
    paths = ((item.id, getattr(item.picture, "path", None)) for item in dataset)
    return {id_: str(path) for id_, path in paths if path is not None}


def need_references(metrics: Sequence[str] | None, human: str | None) -> bool:
    """Returns whether some of the named metrics, or people's references as a system, cannot do without references."""
    table = METRICS.builtin()
    named = [table[key] for name in metrics or () for key in resolve(name, table)]
    return human is not None or any("references" in metric.needs for metric in named)


def with_references(
    systems: Mapping[str, dict[str, list[str]]], dataset: Dataset, allow_missing: bool
) -> tuple[dict[str, dict[str, list[str]]], list[str]]:
    """Returns the captions of pictures that have a reference in the data, and notes on the others.

    Raises `UsageError` for these others without ``allow_missing``. Where no picture has a reference, nothing is left
    out: what needs references says so itself.
    """
    ids = next(iter(systems.values()), {})
    lacking = {item.id for item in dataset if item.id in ids and not item.references}
    if len(lacking) == len(ids):
        return dict(systems), []
    notes = report_problems({"pictures have no reference": sorted(lacking)}, "the data", allow_missing)
    return {name: _without(own, lacking) for name, own in systems.items()}, notes


def with_ids(dataset: Dataset | None, ids: Sequence[str]) -> Dataset | None:
    if dataset is None:
        return None
    wanted = set(ids)
    return dataset.subset([row for row, item in enumerate(dataset) if item.id in wanted])


def _note(how: str | None) -> list[str]:
    """Returns a note on how a file was matched; none if its ids were those of the other side."""
    return [] if how is None else [how]


# Synonyms and instances of objects for an evaluation, and which words of captions its metrics could not verify.


def read_object_inputs(synonyms: Path | None, instances: Path | None) -> tuple[Synonyms, dict[str, frozenset[str]]]:
    """The files of ``--synonyms`` and ``--instances``. Raises `UsageError`."""
    if instances is not None and synonyms is None:
        raise UsageError(
            "instances names objects as COCO does; add --set synonyms=FILE, which says what captions call them"
        )
    known = verify.read_synonyms(synonyms) if synonyms is not None else Synonyms()
    return known, {} if instances is None else verify.read_instances(instances, known)


def read_bag_sets(bags: Sequence[Path], dataset: Dataset | None) -> tuple[list[FileSets], list[str]]:
    """Reads the sets of ``--bags``; their ids are those of the data, where these match as captions do. And notes."""
    found, notes = [own for path in bags for own in test_sets.read_sets(path)], list[str]()
    if found and dataset is not None:
        known = KnownIds("the data", [item.id for item in dataset], _files(dataset))
        for place, own in enumerate(found):
            names, how = match_ids(own.ids(), known, own.name)
            found[place] = own.renamed(names)
            notes += _note(how)
    return found, notes


def read_inputs(
    sets: Sequence[FileSets],
    distractors: str | None,
    ids: Sequence[str],
    dataset: Dataset | None,
    scorer: str | None,
) -> CandidateInputs:
    """Returns the sets of ``--bags`` and the pool of ``--distractors``, with the pictures that have no captions.

    ``distractors``: a data set, or a list of ids of pictures of ``dataset``, in any split of it.
    """
    if not sets and distractors is None:
        return CandidateInputs()
    if scorer is None:
        raise UsageError("--bags and --distractors are for a scorer to choose from; add --scorer MODEL")

    captioned, notes, sets = set(ids), list[str](), list(sets)
    others: Mapping[str, Item] = {item.id: item for item in dataset or ()}
    for place, own in enumerate(sets):
        bare = [id_ for id_ in own.ids() if id_ not in captioned and id_ in others]
        if dataset is not None and (lost := {id_ for id_ in bare if dataset.load_image(others[id_]) is None}):
            sets[place] = own = own.without(lost)
            notes.append(
                f"{own.name}: {len(lost):,} pictures cannot be read, such as '{min(lost)}'; their sets are left out "
                f"({len(own.sets):,} sets remain)"
            )
        if bare := [id_ for id_ in own.asked() if id_ not in captioned]:
            raise UsageError(
                f"{own.name}: {len(bare):,} of {len(own.asked()):,} pictures that its sets ask for have no caption or "
                f"are not in the data, such as '{bare[0]}'; give captions of them all, and the data they are in"
            )
    named = dict.fromkeys(id_ for own in sets for id_ in own.ids() if id_ not in captioned)
    candidates = [others[id_] for id_ in named if id_ in others]
    if distractors is not None:
        captions_of = [others[id_] for id_ in ids if id_ in others]
        if (path := Path(distractors).expanduser()).suffix == ".json" and is_id_list(path):
            if dataset is None:
                raise UsageError(f"{distractors}: a list of ids is one of pictures of --data; name the data")
            distractors = listed(dataset.spec, path)
        others_of = open_data(distractors)
        notes += others_of.report()
        pool = beside(others_of, [*captions_of, *candidates])
        sets.append(test_sets.hard_pool(ids, [item.id for item in pool], f"distractors:{len(pool)}@{distractors}"))
        candidates += pool
    names = [own.name for own in sets]
    if double := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two of the files have sets called {double[0]}; evaluate them one after the other")
    return CandidateInputs(sets, candidates, notes)


# The models of an evaluation: scorers with their features of the pictures, a language model, a text encoder.


def load_scorers(
    names: Sequence[str],
    items: Sequence[Item] | None,
    notes: list[str],
    device: str | torch.device = "auto",
    precision: str = "auto",
) -> tuple[list[tuple[Scorer, np.ndarray]], Sequence[Item] | None]:
    """Each scorer with its features of the items; items whose picture cannot be read are left out, with a note."""
    from tellapart.features.store import FeatureStore
    from tellapart.models import names as model_names
    from tellapart.scorers import load_scorer

    if not names or items is None:
        return [], items

    detail(f"{len(items)} pictures; loading {', '.join(names)}")
    store, skipped, whole = FeatureStore(), Skipped(), len(items)
    scorers = [load_scorer(name, device, precision) for name in names]
    for scorer in scorers:
        model_names.warn_outside_scenes(scorer.name, items, "scorer")
        items = store.readable(items, scorer.encoder, skipped=skipped)
    if not items:
        raise UsageError(f"none of the pictures can be read: {skipped.line(whole)}")
    notes += [line for line in [skipped.line(whole)] if line]
    return [(scorer, np.asarray(store.features(items, scorer.encoder))) for scorer in scorers], items


def readable_candidates(inputs: EvalInputs, items: Sequence[Item], scorer: Scorer, notes: list[str]) -> CandidateInputs:
    """Returns the candidates without pictures that cannot be read, with notes. ``items``: the captioned ones that can.

    A hard pool has so many pictures less; other sets with such a picture are left out.
    """
    from tellapart.features.store import FeatureStore

    given = inputs.candidates
    others = FeatureStore().readable(given.items, scorer.encoder) if given.items else []
    lost = {item.id for item in (*(inputs.items or ()), *given.items)} - {item.id for item in (*items, *others)}
    sets = list(given.sets)
    for place, own in enumerate(sets):
        if unread := sorted(lost.intersection(own.ids())):
            sets[place] = own.without(lost)
            members = sets[place].ids() if own.name == test_sets.HARD else sets[place].sets
            left = f"{len(members):,} {'pictures' if own.name == test_sets.HARD else 'sets'} remain"
            notes.append(f"{own.name}: {len(unread):,} pictures cannot be read, such as '{unread[0]}'; {left}")
    return replace(given, sets=sets, items=others)


def read_choice_questions(path: Path | None, ids: Sequence[str]) -> dict[str, list[ChoiceQuestion]]:
    """Returns CaptionQA's questions of the pictures by id; a picture may go by its file's name there."""
    if path is None:
        return {}
    found = read_questions(path)
    by_stem = {PurePosixPath(picture).stem: own for picture, own in found.items()}
    matched = {id_: own for id_ in ids if (own := found.get(id_) or by_stem.get(PurePosixPath(id_).stem))}
    if not matched:
        raise UsageError(f"{path}: none of its pictures (such as '{next(iter(found))}') has a caption")
    return matched


def read_queries(
    path: Path | None, ids: Sequence[str], items: Sequence[Item] | None
) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the queries of the captioned pictures, by id, and notes on how they were matched and what was left out.

    Raises `UsageError` where none is of a captioned picture.
    """
    if path is None:
        return {}, []
    files = {} if items is None else {item.id: item.picture.name for item in items}
    matched = match_captions(read_reference_file(path), KnownIds("the captions", ids, files), str(path))
    wanted = set(ids)
    found = {
        key: kept for key, own in matched.texts.items() if key in wanted and (kept := [t for t in own if t.strip()])
    }
    if not found:
        raise UsageError(f"{path}: none of its queries is of a captioned picture; expected the ids of the captions")
    notes = [matched.how] if matched.how else []
    if others := len(matched.texts) - len(found):
        notes.append(f"{path}: the queries of {others:,} pictures are left out, which have no caption or no query text")
    return found, notes


def check_options(options: EvalOptions) -> None:
    """Raises `UsageError` for options that need another one which is not given."""
    scorer, metrics = options.scorer, options.metrics
    if options.eval_scorers and scorer is None:
        raise UsageError("--eval-scorer measures beside a first scorer; add --scorer MODEL")
    named_only = (
        ("synonyms", options.synonyms, "chair_i,chair_s"),
        ("--llm-judge", options.llm_judge, "clair"),
    )
    for option, given, some in named_only:
        if metrics is None and given is not None:
            raise UsageError(
                f"{option} serves metrics that are computed only when named; add --metrics {some}, or leave it out"
            )
    if options.words:
        check_words(len(options.captions or ()) + (options.human is not None))
    if scorer is None and (options.long_texts != "truncate" or options.emscore_idf is not None):
        raise UsageError("long_texts and emscore_idf require a scorer; add --scorer MODEL, or leave them out")
    if (options.device, options.precision) != ("auto", "auto") and not options.models:
        raise UsageError("--device and --precision require a model; add --scorer MODEL, or leave them out")
    if options.query_encoder is not None and options.queries is None and "capture_soft" not in (metrics or ""):
        raise UsageError("query_encoder encodes queries; add --queries FILE, or --metrics capture_soft for claims")
    if scorer is not None and options.data is None:
        raise UsageError("a scorer needs pictures; add --data SPEC")


def read_files(options: EvalOptions) -> tuple[dict[str, dict[str, list[str]]], EvalInputs, list[str]]:
    """Returns each system's captions, the inputs beside them with models by name, and notes on how they match."""
    synonyms, instances = read_object_inputs(options.synonyms, options.instances)
    systems = {name: read_caption_file(path) for name, path in name_systems(options.captions or ()).items()}
    dataset = None if options.data is None else open_data(options.data)
    sets, set_notes = read_bag_sets(options.bags or (), dataset)
    needed = {id_ for own in sets for id_ in own.asked()}
    kept, references, notes = match_files(
        systems, read_references(options.references), dataset, options.allow_missing, options.min_overlap, needed
    )
    if references is None and dataset is not None and need_references(options.metrics, options.human):
        kept, lacking = with_references(kept, dataset, options.allow_missing)
        notes += lacking
    ids = list(next(iter(kept.values()), ()))
    if dataset is not None and not systems:  # people's references alone
        ids = [item.id for item in dataset if (references or {}).get(item.id) or item.references]
    items = with_ids(dataset, ids)
    candidates = read_inputs(sets, options.distractors, ids, dataset, options.scorer)
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
        questions=read_choice_questions(options.questions, ids),
        queries=queries,
    )
    return kept, inputs, [*notes, *set_notes, *candidates.notes, *query_notes]


def check_metrics(kept: Mapping[str, Mapping[str, Sequence[str]]], inputs: EvalInputs) -> None:
    """Raises `UsageError`, before anything slow, for a metric's name that is none, or that needs what is missing."""
    choose(inputs.metrics, make_context(kept, inputs)[0])


def load_models(options: EvalOptions, inputs: EvalInputs, notes: list[str]) -> tuple[EvalInputs, dict[str, str]]:
    """Returns the inputs with loaded models and without unreadable pictures, and the hardware that models run on."""
    others = options.eval_scorers or []
    if not options.models:
        return replace(inputs, judge=options.judge.open()), {}
    from tellapart.evaluation import text_models
    from tellapart.models import devices

    on = (options.device, options.precision)
    names = [name for name in (options.scorer, *others) if name is not None]
    scorers, items = load_scorers(names, inputs.items, notes, *on)

    def load(model: Callable[[str, str, str], M], name: str | None) -> M | None:
        return None if name is None else model(name, *on)

    language_model = load(text_models.load_language_model, options.language_model)
    text_encoder = load(text_models.load_text_encoder, options.bertscore)
    query_encoder = load(text_models.load_sentence_encoder, options.query_encoder)
    first, features_ND = scorers[0] if scorers else (None, None)
    candidates = readable_candidates(inputs, items or (), first, notes) if first is not None else inputs.candidates
    loaded = [model.model for model in (*(s for s, _ in scorers), language_model, text_encoder, query_encoder) if model]
    inputs = replace(
        inputs,
        items=items,
        candidates=candidates,
        scorer=first,
        image_features=features_ND,
        eval_scorers={Path(name).name: model for name, model in zip(others, scorers[1:], strict=True)},
        language_model=language_model,
        text_encoder=text_encoder,
        query_encoder=query_encoder,
        judge=options.judge.open(),
    )
    return inputs, devices.hardware(*loaded) if loaded else {}


def run_eval(options: EvalOptions) -> Results:
    """Measures what ``tellapart eval`` was asked to: files of captions, each a system, to `Results`.

    Captions and pictures or references are matched by id, file name, stem or place (`tellapart.data.caption_matching`),
    and the results' notes say how and what was left out; their ``hardware`` says on what models ran.
    """
    check_options(options)
    kept, inputs, notes = read_files(options)
    try:
        check_metrics(kept, inputs)
        inputs, hardware = load_models(options, inputs, notes)
        if inputs.items is not None:
            kept = {name: {item.id: own[item.id] for item in inputs.items} for name, own in kept.items()}
        results = evaluate(kept, inputs)
    except UsageError:
        for note in notes:  # what the data left out may be why something is missing
            say(note)
        raise
    results.notes[:0] = notes
    results.extra["items"] = inputs.items
    results.hardware = hardware
    return results
