"""Evaluation: systems' captions to numbers with intervals, paired differences and signatures.

`evaluate` is for programs, `run_eval` is what ``tellapart eval`` calls. What can be measured, and what each
metric needs, stands in the table of `tellapart.metrics.registry`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart import __version__
from tellapart.data.caption_files import read_caption_file
from tellapart.errors import UsageError
from tellapart.evaluation.context import NEEDS, EvalContext
from tellapart.evaluation.gallery import gallery, keep_sets
from tellapart.evaluation.inputs import (
    CandidateInputs,
    ObjectInputs,
    check_named,
    check_scorer_options,
    features_of,
    hardware_of,
    lists_of,
    load_language_model_from,
    load_scorers,
    load_text_encoder_from,
    marks_of,
    match_files,
    name_systems,
    notes_on_cut_texts,
    notes_on_instances,
    open_optional,
    read_bag_sets,
    read_inputs,
    read_object_inputs,
    read_references,
    references_of,
    same_ids,
    with_ids,
)
from tellapart.evaluation.judges.judge import JudgeInputs
from tellapart.evaluation.selection import choose
from tellapart.metrics.registry import Metric
from tellapart.metrics.results import WORDS, Pair, Results
from tellapart.metrics.statistics import (
    CHANCE,
    HUMAN,
    HUMAN_CHOICES,
    Bounds,
    Draws,
    Measurement,
    MetricTests,
    caption_lists,
    human_slots,
    system_slots,
)
from tellapart.utils.messages import detail

if TYPE_CHECKING:
    from tellapart.evaluation.context import EvalScorer
    from tellapart.evaluation.judges.judge import ChoiceQuestion, Judge
    from tellapart.evaluation.options import EvalOptions
    from tellapart.evaluation.text_models import LanguageModel, TextEncoder
    from tellapart.metrics.statistics import CaptionSlot
    from tellapart.types import Item


# Systems side by side: intervals of what was measured, and the paired differences, picture by picture.

PAIRS = ("first", "all")


class Comparison:
    """Fills a `Results`: measurements metric by metric (`add`), then all intervals and differences (`finish`).

    captions: how many each system has of a picture. human: what a signature says of people's captions. pairs: "first"
    compares each system with the first one, "all" every two systems.
    """

    def __init__(
        self,
        results: Results,
        captions: Mapping[str, int],
        *,
        resamples: int = 1000,
        seed: int = 0,
        human: str = "",
        pairs: str = "first",
    ) -> None:
        self.results, self.captions, self.human, self.pairs = results, captions, human, pairs
        self.resamples, self.seed = resamples, seed
        self._found: dict[str, tuple[Mapping[str, Measurement], Bounds]] = {}

    def add(
        self,
        metric: Metric,
        context: EvalContext,
        measured: dict[str, Measurement],
        *,
        scorer: str = "",
        chance: bool = False,
    ) -> None:
        """One metric of all systems. ``scorer``: the name of the further scorer whose context this is."""
        scorer = scorer or metric.tag(context)  # a judge's days are known once it was asked
        key = f"{metric.name}@{scorer}" if scorer else metric.name
        if chance and metric.chance is not None:
            questions_N = next((one.weight_N for one in measured.values()), None)
            measured[CHANCE] = Measurement(metric.chance(context), weight_N=questions_N)
        self._describe(metric, key, context, measured, scorer)
        self._found[key] = measured, metric.bounds_in(context)
        for system, one in measured.items():
            if one.value_N is not None:
                self.results.values.setdefault(system, {})[key] = one.value_N

    def finish(self) -> None:
        """Intervals of all that was measured, and the differences between systems, from one set of resamples."""
        started = time.monotonic()
        draws = Draws(self.resamples, self.seed)
        tests = {
            key: MetricTests(draws, measured, self._pairs(measured), bounds)
            for key, (measured, bounds) in self._found.items()
        }
        draws.run()
        for key, test in tests.items():
            for system, interval in test.intervals().items():
                self.results.systems.setdefault(system, {})[key] = interval
            self.results.pairs += [Pair(a, b, key, difference) for (a, b), difference in test.differences().items()]
        detail(f"drew {self.resamples:,} resamples for {len(tests)} metrics in {time.monotonic() - started:.2f} s")

    def _describe(
        self, metric: Metric, key: str, context: EvalContext, measured: Mapping[str, Measurement], scorer: str
    ) -> None:
        """The metric's signature, its candidate sets, and what reports say of it."""
        captions = {count for system, count in self.captions.items() if system in measured and system != HUMAN} - {1}
        self.results.signatures[key] = (
            f"{metric.short or metric.name}|{metric.variant(context)}"
            f"|bootstrap:{self.resamples}@{self.seed}|tellapart:{__version__}"
            + (self.human if HUMAN in measured else "")
            + (f"|captions:{','.join(map(str, sorted(captions)))}" if captions else "")
        )
        candidates = metric.candidates(context)
        if candidates is not None:
            self.results.candidates[key] = candidates
        self.results.formats[key] = metric.digits
        self.results.metrics[key] = metric.info(candidates, scorer)

    def _pairs(self, measured: Mapping[str, Measurement]) -> Iterator[tuple[str, str]]:
        systems = [system for system in measured if system != CHANCE]
        return (pair for pair in itertools.combinations(systems, 2) if self.pairs == "all" or pair[0] == systems[0])


__all__ = ["CHANCE", "HUMAN", "HUMAN_CHOICES", "evaluate", "gallery", "run_eval"]


def evaluate(
    systems: Mapping[str, Mapping[str, str | Sequence[str]]],
    *,
    items: Sequence[Item] | None = None,
    references: Mapping[str, Sequence[str]] | None = None,
    scorer: EvalScorer | None = None,
    image_features: np.ndarray | None = None,
    eval_scorers: Mapping[str, tuple[EvalScorer, np.ndarray]] | None = None,
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
    objects: ObjectInputs | None = None,
    judge: Judge | None = None,
    questions: Mapping[str, Sequence[ChoiceQuestion]] | None = None,
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
    every two systems. ``objects``: synonyms and COCO's instances, for CHAIR and facts. ``judge`` is a model
    behind a server that metrics such as CLAIR ask, ``questions`` are CaptionQA's, by id.
    """
    ids = same_ids(systems, items)
    all_references, notes = references_of(ids, items, references)
    objects = objects or ObjectInputs()
    notes += notes_on_instances(objects, ids, items)
    slots = {name: system_slots(lists_of(name, captions, ids), all_references) for name, captions in systems.items()}
    if human is not None:
        slots[HUMAN] = human_slots(human, all_references, seed)
    # People's references are measured for their diversity where that is asked for, not by default.
    several = any(len(own) > 1 for name, own in slots.items() if name != HUMAN or metrics is not None)
    settings: dict[str, Any] = {"lookalike": lookalike, "seed": seed, "several": several}
    settings |= {
        "judge": judge,
        "questions": questions or {},
        "long_texts": long_texts,
        "emscore_idf": emscore_idf,
        **objects.settings(),
    }
    sets = inputs or CandidateInputs()

    def context_of(model: EvalScorer | None, features: np.ndarray | None, **more: Any) -> EvalContext:
        return EvalContext(ids, items, all_references, model, features, **settings, **sets.settings(ids, model), **more)

    context = context_of(
        scorer, features_of(scorer, image_features, items), language_model=language_model, text_encoder=text_encoder
    )
    chosen, left_out = choose(metrics, context)
    contexts = {"": context} | {
        name: context_of(model, features, primary=context) for name, (model, features) in (eval_scorers or {}).items()
    }
    captions = {name: own[0].captions for name, own in slots.items()}
    results = Results(ids, captions=captions, references=all_references, notes=notes + left_out)
    results.extra["caption_lists"] = {name: caption_lists(own) for name, own in slots.items() if len(own) > 1}
    yardstick = f"|human:{human}" if human else ""
    counts = {name: len(own) for name, own in slots.items()}
    comparison = Comparison(results, counts, resamples=resamples, seed=seed, human=yardstick, pairs=pairs)
    for name, where in contexts.items():
        for metric in chosen.values():
            if not name or metric.for_eval_scorers:
                measured = measure(metric, where, slots, results.notes, by=name)
                comparison.add(metric, where, measured, scorer=name, chance=chance)
    comparison.finish()
    results.extra["marks"] = {name: marks_of(context, own[0]) for name, own in slots.items()}
    keep_sets(results, context, list(chosen), slots, [*ids, *(item.id for item in sets.candidates)])
    if words:
        from tellapart.metrics.words import associated_words, tagger_signature

        texts_by_system = {
            name: [text for texts in caption_lists(own) for text in texts] for name, own in slots.items()
        }
        results.words, results.signatures[WORDS] = (
            associated_words(texts_by_system, words),
            f"{WORDS}|{tagger_signature()}",
        )
    results.notes += judge.notes() if judge is not None else []
    results.notes += notes_on_cut_texts(contexts.values(), language_model, text_encoder)
    return results


def measure(
    metric: Metric, context: EvalContext, slots: Mapping[str, list[CaptionSlot]], notes: list[str], by: str = ""
) -> dict[str, Measurement]:
    """One metric of all systems. Those that it does not apply to are left out; ``notes`` say why people are.

    by: the name of the further scorer whose context this is.
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
    """A reference is scored against the others; where a picture has no other, people cannot be scored."""
    if "references" not in metric.needs:
        return False
    alone = any(not references for slot in slots for references in slot.references or [[]])
    note = f"{HUMAN} has no metric that needs references: some pictures have only one, which is the one scored"
    if alone and note not in notes:
        notes.append(note)
    return alone


def run_eval(options: EvalOptions) -> Results:
    """Measures what ``tellapart eval`` was asked to: files of captions, each a system, to `Results`.

    Captions and pictures or references are matched by id, file name, stem or place (`tellapart.data.caption_matching`),
    and the results' notes say how and what was left out. Torch is loaded with a scorer, a language model or a text
    encoder only; the results' ``hardware`` says on what they ran.
    """
    captions, eval_scorers = options.captions or [], options.eval_scorers or []
    if options.resamples < 1 or options.lookalike < 2:
        raise UsageError(
            f"resamples is {options.resamples} and lookalike is {options.lookalike}; expected at least 1 and 2"
        )
    if eval_scorers and options.scorer is None:
        raise UsageError("--eval-scorer measures beside a first scorer; add --scorer MODEL")
    if options.pairs not in PAIRS:
        raise UsageError(f"--pairs is '{options.pairs}'; expected one of {', '.join(PAIRS)}")
    objects = read_object_inputs(options.synonyms, options.instances)
    check_named(
        options.metrics,
        {
            "--synonyms": (options.synonyms, "chair_i,chair_s"),
            "--llm-judge": (options.judge and options.judge.spec, "clair"),
        },
    )
    if options.words:
        from tellapart.metrics.words import check_words

        check_words(len(captions) + (options.human is not None))
    check_scorer_options(options.scorer, options.long_texts, options.emscore_idf)
    if (options.device, options.precision) != ("auto", "auto") and not (
        options.scorer or options.language_model or options.bertscore
    ):
        raise UsageError("--device and --precision are of models; add --scorer MODEL, or leave them out")
    if options.scorer is not None and options.data is None:
        raise UsageError("a scorer needs pictures; add --data SPEC")
    systems = {name: read_caption_file(path) for name, path in name_systems(captions).items()}
    dataset = open_optional(options.data)
    sets, set_notes = read_bag_sets(options.bags or (), dataset)
    needed = {id_ for own in sets for id_ in own.asked()}
    kept, known_references, notes = match_files(
        systems, read_references(options.references), dataset, options.allow_missing, options.min_overlap, needed
    )
    notes += set_notes
    ids = list(next(iter(kept.values())))
    items = with_ids(dataset, ids)
    inputs = read_inputs(sets, options.distractors, ids, dataset, options.scorer)
    notes += inputs.notes
    all_references, unused = references_of(ids, items, known_references)
    several = any(len(texts) > 1 for own in kept.values() for texts in own.values())
    several = several or (
        options.human == "mean"
        and options.metrics is not None
        and any(len(texts) > 1 for texts in all_references or ())
    )
    if options.emscore_idf == "references" and all_references is None:
        raise UsageError("--emscore-idf references needs references; add --references FILE, or type captions")
    # Before anything slow: a wrong name, a missing option.
    trial = EvalContext(ids, items, all_references, options.scorer, several=several, **inputs.settings(ids))
    trial.language_model, trial.text_encoder = options.language_model, options.bertscore
    judged = options.judge or JudgeInputs()
    trial.judge, trial.questions = judged.spec, judged.read_questions(ids)
    try:
        choose(options.metrics, trial)
    except UsageError as error:
        why = unused if NEEDS["references"].message in str(error) else ()
        raise UsageError("; ".join([str(error), *why])) from None
    names = [name for name in (options.scorer, *eval_scorers) if name is not None]
    models, readable = load_scorers(names, items, notes, options.device, options.precision)
    perplexity_model = load_language_model_from(options.language_model, options.device, options.precision)
    bertscore_model = load_text_encoder_from(options.bertscore, options.device, options.precision)
    if readable is not None:
        kept = {name: {item.id: own[item.id] for item in readable} for name, own in kept.items()}
    results = evaluate(
        kept,
        items=readable,
        references=known_references,
        scorer=models[0][0] if models else None,
        image_features=models[0][1] if models else None,
        eval_scorers={_last(name): model for name, model in zip(eval_scorers, models[1:], strict=True)},
        metrics=options.metrics,
        human=options.human,
        chance=options.chance,
        lookalike=options.lookalike,
        resamples=options.resamples,
        seed=options.seed,
        language_model=perplexity_model,
        text_encoder=bertscore_model,
        long_texts=options.long_texts,
        emscore_idf=options.emscore_idf,
        words=options.words,
        inputs=inputs,
        pairs=options.pairs,
        objects=objects,
        judge=judged.open(),
        questions=trial.questions,
    )
    results.notes[:0] = notes
    results.extra["items"] = readable
    results.hardware = hardware_of([*(model for model, _ in models), perplexity_model, bertscore_model])
    return results


def _last(name: str) -> str:
    return Path(name).name
