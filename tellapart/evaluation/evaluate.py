"""Evaluation: systems' captions to numbers with intervals, paired differences and signatures.

`evaluate` is for programs, `run_eval` is what ``tellapart eval`` calls. What can be measured, and what each
metric needs, stands in the table of `tellapart.evaluation.registry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.data.caption_files import CaptionFile, preview_ids, read_caption_file, read_reference_file
from tellapart.data.caption_matching import KnownIds, align_lists, check_overlap, match_captions, report_problems
from tellapart.errors import UsageError
from tellapart.evaluation.comparison import CHANCE, HUMAN, PAIRS, Comparison
from tellapart.evaluation.context import EMSCORE_IDF, LONG_TEXTS, EvalContext
from tellapart.evaluation.gallery import gallery
from tellapart.evaluation.inputs import CandidateInputs, read_inputs
from tellapart.evaluation.retrieval import per_set
from tellapart.evaluation.selection import choose
from tellapart.evaluation.slots import HUMAN_CHOICES, caption_lists, human_slots, system_slots
from tellapart.metrics.results import WORDS, Results
from tellapart.metrics.words import associated_words, check_words, tagger_signature
from tellapart.utils.messages import detail

if TYPE_CHECKING:
    from tellapart.data import Dataset
    from tellapart.evaluation.context import Slot
    from tellapart.evaluation.language_model import LanguageModel
    from tellapart.evaluation.text_encoder import TextEncoder
    from tellapart.scorers import Scorer
    from tellapart.types import Item

__all__ = ["CHANCE", "HUMAN", "HUMAN_CHOICES", "evaluate", "gallery", "run_eval"]


def evaluate(
    systems: Mapping[str, Mapping[str, str | Sequence[str]]],
    *,
    items: Sequence[Item] | None = None,
    references: Mapping[str, Sequence[str]] | None = None,
    scorer: Any = None,
    image_features: np.ndarray | None = None,
    eval_scorers: Mapping[str, tuple[Any, np.ndarray]] | None = None,
    metrics: Sequence[str] | None = None,
    human: str | None = None,
    chance: bool = False,
    lookalike: int = 10,
    resamples: int = 1000,
    seed: int = 0,
    language_model: LanguageModel | None = None,
    text_encoder: TextEncoder | None = None,
    long_texts: str = "truncate",
    emscore_idf: str | None = None,
    words: int = 0,
    inputs: CandidateInputs | None = None,
    pairs: str = "first",
) -> Results:
    """Measure each system's captions (``{system: {id: caption}}``) over the same pictures, in their order.

    A caption may be a list of captions of that picture: metrics of one caption are then their mean, and the
    diversity metrics look at all of them. ``items`` gives the order (random pools are cut from it), references and
    truth; ``image_features`` are the scorer's normalised features of the items, N×D, else they are read from the
    feature store. ``eval_scorers`` are further scorers with their features: their metrics are named
    ``METRIC@NAME``, and they judge the look-alike sets that ``scorer`` mined. ``human`` scores the references as a
    system: "first" (paper 3), a "random" one (paper 1), or the "mean" over all (paper 2); it is left out of the
    references then. ``chance`` adds the blind guess. Metrics: all that can be computed, or those named
    (`UsageError` for one that cannot). Intervals are 95 % over ``resamples`` bootstrap resamples of the pictures.
    ``language_model`` is what perplexity asks, ``text_encoder`` what BERTScore does. ``long_texts`` says what
    happens to captions beyond a scorer's window: "truncate", or "sentences" (the mean of their sentences' scores).
    ``emscore_idf`` weighs EMScore's tokens by their rareness in the "references" or in the "captions"; None: all
    alike. ``words`` adds so many adjectives and nouns that are most each system's own
    (`tellapart.metrics.associated_words`). ``inputs`` are candidate sets of files: bags of look-alikes, hard pools
    (`tellapart.evaluation.inputs.read_inputs`). ``pairs``: "first" tests each system against the first one, "all"
    every two systems.
    """
    ids = _same_ids(systems, items)
    held, notes = _references(ids, items, references)
    slots = {name: system_slots(_lists(name, captions, ids), held) for name, captions in systems.items()}
    if human is not None:
        slots[HUMAN] = human_slots(human, held, seed)
    # People's references are measured for their diversity where that is asked for, not by default.
    several = any(len(own) > 1 for name, own in slots.items() if name != HUMAN or metrics is not None)
    settings: dict[str, Any] = {"lookalike": lookalike, "seed": seed, "several": several}
    settings |= {"long_texts": long_texts, "emscore_idf": emscore_idf}
    sets = inputs or CandidateInputs()

    def context_of(model: Any, features: np.ndarray | None, **more: Any) -> EvalContext:
        return EvalContext(ids, items, held, model, features, **settings, **sets.settings(ids, model), **more)

    context = context_of(
        scorer, _features(scorer, image_features, items), language_model=language_model, text_encoder=text_encoder
    )
    chosen, left_out = choose(metrics, context)
    contexts = {"": context} | {
        name: context_of(model, features, primary=context) for name, (model, features) in (eval_scorers or {}).items()
    }
    captions = {name: own[0].captions for name, own in slots.items()}
    results = Results(ids, captions=captions, references=held, notes=notes + left_out)
    results.extra["caption_lists"] = {name: caption_lists(own) for name, own in slots.items() if len(own) > 1}
    yardstick = f"|human:{human}" if human else ""
    comparison = Comparison(results, slots, resamples=resamples, seed=seed, human=yardstick, pairs=pairs)
    for name, where in contexts.items():
        for metric in chosen.values():
            if not name or metric.for_eval_scorers:
                comparison.measure(metric, where, scorer=name, chance=chance)
    _keep_sets(results, context, list(chosen), slots, [*ids, *(item.id for item in sets.candidates)])
    if words:
        said = {name: [text for texts in caption_lists(own) for text in texts] for name, own in slots.items()}
        results.words, results.signatures[WORDS] = associated_words(said, words), f"{WORDS}|{tagger_signature()}"
    results.notes += _notes_of_models(contexts.values(), language_model, text_encoder)
    return results


def _features(scorer: Any, given_ND: np.ndarray | None, items: Sequence[Item] | None) -> np.ndarray | None:
    """The scorer's features of the items: those given, else from the feature store."""
    if scorer is None or given_ND is not None or items is None:
        return given_ND
    from tellapart.features.store import FeatureStore

    return np.asarray(FeatureStore().features(items, scorer.encoder))


def _keep_sets(
    results: Results,
    context: EvalContext,
    chosen: Sequence[str],
    slots: Mapping[str, list[Slot]],
    all_ids: Sequence[str],
) -> None:
    """What each system found in the look-alike sets and, set by set, in those of files, for galleries and tables."""
    if any(name.endswith(".lookalike") for name in chosen):
        results.extra["lookalike"] = {name: context.retrieval(own[0], "lookalike") for name, own in slots.items()}
    results.extra["sets"] = {
        pools: {name: per_set(context.retrieval(own[0], pools), all_ids) for name, own in slots.items()}
        for pools in context.file_sets
        if any(name.endswith(f".{pools}") for name in chosen)
    }


def _notes_of_models(
    contexts: Iterable[EvalContext], language_model: LanguageModel | None, text_encoder: TextEncoder | None
) -> list[str]:
    """Which texts were too long for a scorer, for the language model or for the text encoder."""
    notes = [note for where in contexts for note in [where.long_note()] if note]
    if language_model is not None and language_model.cut_texts:
        notes.append(
            f"{language_model.cut_texts} texts are longer than the window of {language_model.window} tokens of "
            f"{language_model.name}; their perplexity is of what fits"
        )
    if text_encoder is not None and text_encoder.cut_texts:
        notes.append(
            f"{text_encoder.cut_texts} texts are longer than the window of {text_encoder.window} tokens of "
            f"{text_encoder.name}; their BERTScore is of what fits"
        )
    return notes


def _lists(name: str, captions: Mapping[str, str | Sequence[str]], ids: Sequence[str]) -> list[list[str]]:
    lists = [[text] if isinstance(text, str) else list(text) for text in (captions[key] for key in ids)]
    mute = [key for key, texts in zip(ids, lists, strict=True) if not texts]
    if mute:
        raise UsageError(
            f"'{name}' has an empty list of captions of {preview_ids(mute)}; give at least one, or an empty one"
        )
    return lists


def _same_ids(systems: Mapping[str, Mapping[str, str | Sequence[str]]], items: Sequence[Item] | None) -> list[str]:
    """The ids in the order of the items, else of the first system. `UsageError` where a system's differ."""
    if not systems:
        raise UsageError("no captions to evaluate; add --captions FILE")
    for name in (HUMAN, CHANCE):
        if name in systems:
            raise UsageError(f"a system may not be called '{name}': that names a yardstick; rename the caption file")
    first = next(iter(systems))
    ids = [item.id for item in items] if items is not None else list(systems[first])
    known = set(ids)
    for name, captions in systems.items():
        lacking = [key for key in ids if key not in captions]
        unknown = [key for key in captions if key not in known]
        if lacking or unknown:
            whose = "the data" if items is not None else f"'{first}'"
            raise UsageError(
                f"'{name}' and {whose} are not about the same pictures: {len(lacking)} have no caption "
                f"({preview_ids(lacking)}), {len(unknown)} captions have no picture ({preview_ids(unknown)})"
            )
    if not ids:
        raise UsageError("no pictures to evaluate; the captions or the data are empty")
    return ids


def _references(
    ids: list[str], items: Sequence[Item] | None, references: Mapping[str, Sequence[str]] | None
) -> tuple[list[list[str]] | None, list[str]]:
    """References in the order of the ids: those given, else the items'. None, with a note, where some lack."""
    if references is None:
        if items is None or not any(item.references for item in items):
            return None, []
        references = {item.id: item.references for item in items}
    held = [list(references.get(key, ())) for key in ids]
    without = [key for key, texts in zip(ids, held, strict=True) if not texts]
    if without:
        return None, [f"{len(without)} pictures have no reference ({preview_ids(without)}): references are not used"]
    return held, []


def run_eval(
    captions: Sequence[Path],
    references: Path | Sequence[Path] | None = None,
    data: str | None = None,
    scorer: str | None = None,
    metrics: Sequence[str] | None = None,
    *,
    eval_scorers: Sequence[str] = (),
    human: str | None = None,
    chance: bool = False,
    lookalike: int = 10,
    resamples: int = 1000,
    seed: int = 0,
    allow_missing: bool = False,
    min_overlap: float = 0.5,
    language_model: str | None = None,
    bertscore: str | None = None,
    long_texts: str = "truncate",
    emscore_idf: str | None = None,
    words: int = 0,
    bags: Sequence[Path] = (),
    distractors: str | None = None,
    pairs: str = "first",
) -> Results:
    """``tellapart eval``: files of captions (each a system, named after its file) to `Results`.

    ``references`` is a file, or several whose references of an id are joined; ``data`` a specification such as
    ``coco:FOLDER?split=test`` (its references are used where no file is given), ``scorer`` and ``eval_scorers`` are
    model folders or names. Captions and pictures or references are matched by id, file name, stem or place
    (`tellapart.data.caption_matching`), and the results' notes say how. ``allow_missing`` scores what all have, and
    the notes say what was left out; where two sides share less than ``min_overlap`` of the larger one's ids, it is a
    `UsageError` all the same. ``bags`` are files of candidate sets (`tellapart.evaluation.candidate_sets`),
    ``distractors`` the specification of pictures beyond these that every caption has to be told from as well. Torch
    is loaded with a scorer, a ``language_model`` or a text encoder for ``bertscore`` (folders or hub names) only. For
    the rest see `evaluate`.
    """
    if resamples < 1 or lookalike < 2:
        raise UsageError(f"resamples is {resamples} and lookalike is {lookalike}; expected at least 1 and 2")
    if eval_scorers and scorer is None:
        raise UsageError("--eval-scorer measures beside a first scorer; add --scorer MODEL")
    if pairs not in PAIRS:
        raise UsageError(f"--pairs is '{pairs}'; expected one of {', '.join(PAIRS)}")
    if words:
        check_words(len(captions) + (human is not None))
    _check_choices(scorer, long_texts, emscore_idf)
    if scorer is not None and data is None:
        raise UsageError("a scorer needs pictures; add --data SPEC")
    systems = {name: read_caption_file(path) for name, path in _names(captions).items()}
    dataset = _open(data)
    kept, told, notes = _matched(systems, _read_all_references(references), dataset, allow_missing, min_overlap)
    ids = list(next(iter(kept.values())))
    items = _chosen(dataset, ids)
    inputs = read_inputs(bags, distractors, ids, dataset, scorer)
    held = _references(ids, items, told)[0]
    several = any(len(texts) > 1 for own in kept.values() for texts in own.values())
    several = several or (human == "mean" and metrics is not None and any(len(texts) > 1 for texts in held or ()))
    if emscore_idf == "references" and held is None:
        raise UsageError("--emscore-idf references needs references; add --references FILE, or type captions")
    # Before anything slow: a wrong name, a missing option.
    trial = EvalContext(ids, items, held, scorer, several=several, **inputs.settings(ids))
    trial.language_model, trial.text_encoder = language_model, bertscore
    choose(metrics, trial)
    models, readable = _models([name for name in (scorer, *eval_scorers) if name is not None], items, notes)
    if readable is not None:
        kept = {name: {item.id: own[item.id] for item in readable} for name, own in kept.items()}
    results = evaluate(
        kept,
        items=readable,
        references=told,
        scorer=models[0][0] if models else None,
        image_features=models[0][1] if models else None,
        eval_scorers={_last(name): model for name, model in zip(eval_scorers, models[1:], strict=True)},
        metrics=metrics,
        human=human,
        chance=chance,
        lookalike=lookalike,
        resamples=resamples,
        seed=seed,
        language_model=_language_model(language_model),
        text_encoder=_text_encoder(bertscore),
        long_texts=long_texts,
        emscore_idf=emscore_idf,
        words=words,
        inputs=inputs,
        pairs=pairs,
    )
    results.notes[:0] = notes
    results.extra["items"] = readable
    return results


def _check_choices(scorer: str | None, long_texts: str, emscore_idf: str | None) -> None:
    if long_texts not in LONG_TEXTS:
        raise UsageError(f"--long-texts is '{long_texts}'; expected one of {', '.join(LONG_TEXTS)}")
    if emscore_idf is not None and emscore_idf not in EMSCORE_IDF:
        raise UsageError(f"--emscore-idf is '{emscore_idf}'; expected one of {', '.join(EMSCORE_IDF)}")
    if scorer is None and (long_texts != "truncate" or emscore_idf is not None):
        raise UsageError("--long-texts and --emscore-idf are of a scorer; add --scorer MODEL, or leave them out")


def _language_model(name: str | None) -> LanguageModel | None:
    if name is None:
        return None
    from tellapart.evaluation.language_model import load_language_model
    from tellapart.models.device import best_device

    return load_language_model(name, best_device())


def _text_encoder(name: str | None) -> TextEncoder | None:
    if name is None:
        return None
    from tellapart.evaluation.text_encoder import load_text_encoder
    from tellapart.models.device import best_device

    return load_text_encoder(name, best_device())


def _names(paths: Sequence[Path]) -> dict[str, Path]:
    """Systems are called by the stem of their file, or by folder and stem where stems are equal."""
    paths = [Path(path) for path in paths]
    for name_of in (lambda path: path.stem, lambda path: f"{path.absolute().parent.name}/{path.stem}"):
        names = {name_of(path): path for path in paths}
        if len(names) == len(paths):
            return names
    raise UsageError("two caption files have the same name; rename one, for a system is named after its file")


def _read_all_references(paths: Path | Sequence[Path] | None) -> CaptionFile | None:
    """The references of every id, of all files together; None where there is no file."""
    files = [read_reference_file(path) for path in ([paths] if isinstance(paths, str | Path) else paths or ())]
    if len(files) < 2:
        return files[0] if files else None
    whole = CaptionFile("the references", {}, {}, numbered=all(file.numbered for file in files))
    for file in files:
        matched = match_captions(
            file, KnownIds("the references", list(whole.texts), whole.files, whole.numbered), file.name
        )
        for id_, texts in (matched if whole.texts else file).texts.items():
            whole.texts.setdefault(id_, []).extend(texts)
        whole.files.update(file.files)
    return whole


def _last(name: str) -> str:
    return Path(name).name


def _open(data: str | None) -> Dataset | None:
    if data is None:
        return None
    from tellapart.data import open_data

    return open_data(data)


def _matched(
    systems: Mapping[str, CaptionFile],
    references: CaptionFile | None,
    dataset: Dataset | None,
    allow_missing: bool,
    min_overlap: float,
) -> tuple[dict[str, dict[str, list[str]]], dict[str, list[str]] | None, list[str]]:
    """Captions and references by the ids that all have; `UsageError` where some differ and may not.

    The ids are those of the data, else of the references, else of the first system. The notes say how files that name
    pictures differently were matched.
    """
    notes = dataset.report() if dataset is not None else []
    told = None if references is None else references.texts
    if dataset is not None:
        known = KnownIds("the data", [item.id for item in dataset], _files(dataset))
        if references is not None:
            matched = match_captions(references, known, "references")
            told, notes = matched.texts, notes + _said(matched.how)
        lacking = [key for key in known.ids if told is not None and not told.get(key)]
        check_overlap(len(known.ids) - len(lacking), len(known.ids), "references", "the data", min_overlap)
        notes += report_problems({"pictures of the data have no entry": lacking}, "references", allow_missing)
        known = replace(known, ids=[key for key in known.ids if told is None or told.get(key)])
    else:
        first = references or next(iter(systems.values()), CaptionFile("", {}))
        whose = "the references" if references is not None else "the first caption file"
        known = KnownIds(whose, list(first.texts), first.files, first.numbered)
    kept = {}
    for name, file in systems.items():
        matched = match_captions(file, known, name)
        detail(matched.how or f"{name}: {len(file.texts)} ids matched with {known.name} as they stand")
        kept[name], more = align_lists(matched.texts, known.ids, allow_missing, name, known.name, min_overlap)
        notes += [*_said(matched.how), *more]
    common = [key for key in known.ids if all(key in captions for captions in kept.values())]
    if not common and systems:
        raise UsageError("no picture has a caption of every system; give caption files about the same pictures")
    for name, own in kept.items():
        check_overlap(len(common), len(own), name, "the other systems", min_overlap)
    return {name: {key: own[key] for key in common} for name, own in kept.items()}, told, notes


def _said(how: str | None) -> list[str]:
    """How a file was matched, as a note; nothing where its ids were those of the other side."""
    return [] if how is None else [how]


def _files(dataset: Dataset) -> dict[str, str]:
    """The file of each picture that is one."""
    paths = ((item.id, getattr(item.picture, "path", None)) for item in dataset)
    return {id_: str(path) for id_, path in paths if path is not None}


def _chosen(dataset: Dataset | None, ids: Sequence[str]) -> Dataset | None:
    if dataset is None:
        return None
    wanted = set(ids)
    return dataset.subset([row for row, item in enumerate(dataset) if item.id in wanted])


def _models(
    names: Sequence[str], items: Sequence[Item] | None, notes: list[str]
) -> tuple[list[tuple[Scorer, np.ndarray]], Sequence[Item] | None]:
    """Each scorer with its features of the items; items whose picture cannot be read are left out, with a note."""
    if not names or items is None:
        return [], items
    from tellapart.data import Skipped
    from tellapart.features.store import FeatureStore
    from tellapart.models.device import best_device
    from tellapart.scorers import load_scorer

    detail(f"{len(items)} pictures; loading {', '.join(names)}")
    store, skipped, whole = FeatureStore(), Skipped(), len(items)
    scorers = [load_scorer(name, best_device()) for name in names]
    for scorer in scorers:
        items = store.readable(items, scorer.encoder, skipped=skipped)
    if not items:
        raise UsageError(f"none of the pictures can be read: {skipped.line(whole)}")
    notes += [line for line in [skipped.line(whole)] if line]
    return [(scorer, np.asarray(store.features(items, scorer.encoder))) for scorer in scorers], items
