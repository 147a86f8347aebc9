"""Evaluation: systems' captions to numbers with intervals, paired differences and signatures.

`evaluate` is for programs; ``tellapart eval`` reads files first (`tellapart.evaluation.inputs.run_eval`). Metrics and
what each needs are the entries of `tellapart.metrics.registry`.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart import __version__
from tellapart.check.pairing import measure_fit
from tellapart.data.caption_matching import preview_ids, with_text
from tellapart.errors import TellapartError, UsageError
from tellapart.evaluation.context import NEEDS, EvalContext, EvalInputs, names_in
from tellapart.evaluation.facts.verify import Verdict
from tellapart.evaluation.judges.judge import Judge
from tellapart.evaluation.metrics.scorer import mean_rank, recall
from tellapart.evaluation.selection import with_choices
from tellapart.evaluation.test_sets import check_features, per_set
from tellapart.metrics.registry import METRICS, SUFFIXES, Metric, in_order, normalized, resolve, suggestion
from tellapart.metrics.results import WORDS, Results, SystemPair
from tellapart.metrics.slots import CHANCE, HUMAN, HUMAN_CHOICES, CaptionSlot, caption_lists, human_slots, system_slots
from tellapart.metrics.statistics import ALPHA, Draws, Measurement, MetricTests, holm
from tellapart.metrics.words import associated_words, tagger_signature
from tellapart.types import Item
from tellapart.utils.messages import detail, say_once
from tellapart.utils.registry import first_line, is_dotted, load_allowed

if TYPE_CHECKING:
    from tellapart.scorers import Scorer

# Systems side by side: intervals of what was measured, and the paired differences, picture by picture.

ALL = "all"


class Comparison:
    """Fills a `Results`: measurements metric by metric (`add`), then all intervals and differences (`finish`).

    slots: each system's captions. inputs: the resamples and their seed; ``pairs`` "first" compares each system with the
    first one, "all" every two systems; ``correction`` "holm" corrects p over all pairs and metrics.
    """

    def __init__(self, results: Results, slots: Mapping[str, list[CaptionSlot]], inputs: EvalInputs) -> None:
        self.results, self.inputs = results, inputs
        self.captions = {name: [slot.captions for slot in own] for name, own in slots.items()}
        self._draws = Draws(inputs.resamples, inputs.seed)
        self._tests: dict[str, MetricTests] = {}

    def add(self, metric: Metric, context: EvalContext, measured: dict[str, Measurement], *, scorer: str = "") -> None:
        """One metric of all systems. ``scorer``: the name of the further scorer whose context this is."""
        scorer = scorer or metric.tag(context)  # a judge's days are known once it was asked
        key = f"{metric.name}@{scorer}" if scorer else metric.name
        if self.inputs.chance and metric.chance is not None:
            questions_N = next((one.weight_N for one in measured.values()), None)
            measured[CHANCE] = Measurement(metric.chance(context), weight_N=questions_N)
        # Frames of one clip are alike in everything; pictures of a bag depend on each other by being told apart.
        pools = metric.pools or "imagecode"
        unit_N = context.sets(pools).units(len(context.ids)) if pools in context.file_sets else None
        self._describe(metric, key, context, measured, scorer, "" if unit_N is None else ",unit:sets")
        pairs = list(self._pairs(measured))
        same = [(a, b) for a, b in pairs if HUMAN not in (a, b) and self.captions[a] == self.captions[b]]
        self._tests[key] = MetricTests(self._draws, measured, pairs, metric.bounds_in(context), unit_N, same)
        for system, one in measured.items():
            if one.value_N is not None:
                self.results.values.setdefault(system, {})[key] = one.value_N

    def finish(self) -> None:
        """Intervals of all that was measured, and the differences between systems, from one set of resamples."""
        started = time.monotonic()
        self._draws.run()
        for key, test in self._tests.items():
            for system, interval in test.intervals().items():
                self.results.systems.setdefault(system, {})[key] = interval
            self.results.pairs += [
                SystemPair(a, b, key, difference) for (a, b), difference in test.differences().items()
            ]
        if self.inputs.correction == "holm":
            self._correct()
        resamples = self._draws.resamples
        detail(f"drew {resamples:,} resamples for {len(self._tests)} metrics in {time.monotonic() - started:.2f} s")

    def _correct(self) -> None:
        """Adds Holm's p-values over all pairs and metrics."""
        pairs, resamples = self.results.pairs, self._draws.resamples
        adjusted = holm([pair.difference.p for pair in pairs])
        self.results.pairs = [
            replace(pair, difference=replace(pair.difference, p_holm=p))
            for pair, p in zip(pairs, adjusted, strict=True)
        ]
        tests = sum(not math.isnan(p) for p in adjusted)
        if tests / (1 + resamples) >= ALPHA:
            self.results.notes.append(
                f"{resamples:,} resamples give no p below {1 / (1 + resamples):.4f}; Holm's correction multiplies it "
                f"by {tests}, so nothing can be significant; add --resamples {100 * tests}"
            )

    def _describe(
        self,
        metric: Metric,
        key: str,
        context: EvalContext,
        measured: Mapping[str, Measurement],
        scorer: str,
        unit: str,
    ) -> None:
        """The metric's signature, its candidate sets, and what reports say of it."""
        captions = {len(own) for system, own in self.captions.items() if system in measured and system != HUMAN} - {1}
        self.results.signatures[key] = (
            f"{metric.short or metric.name}|{metric.variant(context)}"
            f"|bootstrap:{self._draws.resamples}@{self._draws.seed}{unit}"
            f"|tellapart:{__version__}"
            + (f"|human:{self.inputs.human}" if HUMAN in measured else "")
            + (f"|captions:{','.join(map(str, sorted(captions)))}" if captions else "")
        )
        candidates = metric.candidates(context)
        if candidates is not None:
            self.results.candidates[key] = candidates
        self.results.metrics[key] = metric.info(candidates, scorer)

    def _pairs(self, measured: Mapping[str, Measurement]) -> Iterator[tuple[str, str]]:
        systems = [system for system in measured if system != CHANCE]
        return (
            pair for pair in itertools.combinations(systems, 2) if self.inputs.pairs == "all" or pair[0] == systems[0]
        )


__all__ = ["CHANCE", "HUMAN", "HUMAN_CHOICES", "evaluate"]


def evaluate(
    systems: Mapping[str, Mapping[str, str | Sequence[str]]], inputs: EvalInputs | None = None, **settings: Any
) -> Results:
    """Measures each system's captions (``{system: {id: caption}}``) over the same pictures, in their order.

    A caption may be a list of captions of that picture: metrics of one caption are then their mean, and the
    diversity metrics look at all of them. Intervals are 95 % over bootstrap resamples of the pictures.

    inputs, settings: `EvalInputs`, and fields of it by name: ``evaluate(systems, references=…, metrics=["cider"])``.
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
        results.signatures[WORDS] = f"{WORDS}|{tagger_signature()}"
    results.notes += notes_on_pairing(results, context.references)
    results.notes += notes_on_queries(results, context)
    results.notes += notes_on_cider(chosen, context)
    results.notes += inputs.judge.notes() if isinstance(inputs.judge, Judge) else []
    results.notes += notes_on_cut_texts(contexts.values())
    return results


def make_context(
    systems: Mapping[str, Mapping[str, str | Sequence[str]]], inputs: EvalInputs
) -> tuple[EvalContext, dict[str, list[CaptionSlot]], list[str]]:
    """Returns the inputs in the order of the ids, each system's captions, and notes. Raises `UsageError`."""
    items, human = inputs.items, inputs.human
    ids = [item.id for item in items] if items and human is not None and not systems else same_ids(systems, items)
    references, notes = references_of(ids, items, inputs.references)
    if inputs.emscore_idf == "references" and references is None:
        raise UsageError(
            "emscore_idf=references requires references; add --references FILE, or --set emscore_idf=captions"
        )
    notes += notes_on_instances(inputs.instances, ids, items)
    slots = {name: system_slots(lists_of(name, captions, ids), references) for name, captions in systems.items()}
    if human is not None:
        slots[HUMAN] = human_slots(human, references, inputs.seed)
        queries, said = without_own_captions(inputs.queries, slots[HUMAN], ids)
        inputs, notes = replace(inputs, queries=queries), notes + said
    # People's references are measured for their diversity where that is asked for, not by default.
    several = any(len(own) > 1 for name, own in slots.items() if name != HUMAN or inputs.metrics is not None)
    image_ND = features_of(inputs.scorer, inputs.image_features, items)
    return EvalContext(ids, items, references, inputs.scorer, image_ND, inputs, several=several), slots, notes


def without_own_captions(
    queries: Mapping[str, Sequence[str]], human: list[CaptionSlot], ids: list[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the queries without those that are the person's caption itself, which would find it by being it, and a
    note on how many these were. Raises `UsageError` where none is left."""
    own = {id_: {_plain_words(text) for text in texts} for id_, texts in zip(ids, caption_lists(human), strict=True)}
    kept = {id_: [text for text in texts if _plain_words(text) not in own[id_]] for id_, texts in queries.items()}
    left_out = sum(map(len, queries.values())) - sum(map(len, kept.values()))
    if left_out and not any(kept.values()):
        raise UsageError("every query is a caption of --human; type --human first, or name other queries")
    note = f"{left_out:,} queries are left out of every system: they are the captions of {HUMAN}, word for word"
    return kept, [note] if left_out else []


def _plain_words(text: str) -> str:
    return " ".join(text.lower().split())


def notes_on_pairing(results: Results, references: Sequence[Sequence[str]] | None) -> list[str]:
    """A note on each system whose captions fit the references of their pictures as shuffled ones do."""
    lines = []
    for system, captions in results.captions.items():
        if references is not None and system != HUMAN and (fit := measure_fit(captions, references)) and fit.doubtful:
            lines.append(
                f"{system}: {100 * fit.misfits:.0f} % of its captions share more words with most other pictures' "
                f"references than with their own, as shuffled ones do (permutation test: p = {fit.p:.2g}); are both "
                "files about the same pictures, in the same order and language?"
            )
    return lines


VERBATIM = 0.05  # from this share on a note says that captions are queries


def notes_on_queries(results: Results, context: EvalContext) -> list[str]:
    """For each system a line on what its captions find, and one where many of them are the queries themselves."""
    lines = []
    queries = [{_plain_words(text) for text in context.inputs.queries.get(id_, ())} for id_ in context.ids]
    for system, found in results.systems.items():
        if (interval := found.get("search_bm25_r1")) is not None and system != CHANCE:
            many = f"{len(context.flat_queries[0]):,} queries among {len(context.ids):,} pictures"
            first, ten = (f"{one.value:.1f} %" for one in (interval, found.get("search_bm25_r10", interval)))
            more = f" ({ten} among the first ten)" if "search_bm25_r10" in found else ""
            lines.append(f"{system}: its captions find {first} of the {many} first, by BM25{more}")
            pairs = list(zip(results.captions[system], queries, strict=True))
            if (same := sum(_plain_words(text) in own for text, own in pairs)) > VERBATIM * len(pairs):
                lines.append(
                    f"{system}: {same:,} of its {len(pairs):,} captions are a query of their picture, word for word"
                )
    return lines


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


# Which metrics are computed: all that can be, or those that people name.

_OF_FILE_SETS = re.compile(r"(recall@\d+|mean_rank)\.(bag\d+|hard|imagecode)")


def metrics_of(context: EvalContext, registered: Iterable[Metric]) -> dict[str, Metric]:
    """By name the registered metrics, those of candidate sets of files, and those of one of several captions."""
    table = in_order([*registered, *_of_file_sets(context)])
    if context.several:
        table |= {choice.name: choice for metric in list(table.values()) for choice in with_choices(metric)}
    return table


def choose(names: Sequence[str] | None, context: EvalContext) -> tuple[dict[str, Metric], list[str]]:
    """The metrics to compute by name, and notes on those that are left out.

    Without names: all that can be computed, except those that need a tagger, tables, Java or a judge. ``["all"]``
    computes these too, and a note names what is left out and what each needs. Other names are those that people use
    (`tellapart.evaluation.selection`) and dotted paths of functions. `UsageError` for an unknown name (with the
    nearest) and for a metric that lacks something (with the option to add).
    """
    if names is not None and [name.lower() for name in names] == [ALL]:
        return _choose_all(context)
    if names is None:
        table = metrics_of(context, METRICS.entries(broken=say_once))
        able = {
            name: metric
            for name, metric in table.items()
            if metric.check is None and not name.endswith(SUFFIXES) and metric.missing(context) is None
        }
        return able, _notes_on_few(table, context)
    outside = {name: of_dotted_path(name) for name in names if ":" in name and is_dotted(name)}
    table = metrics_of(context, [*METRICS.builtin().values(), *outside.values()])
    names = [outside[name].name if name in outside else name for name in names]
    if not all(resolve(name, table) for name in names):
        table = metrics_of(context, [*METRICS.entries(broken=say_once), *outside.values()])
    chosen = {key: table[key] for name in names for key in _keys(name, table, context)}
    for metric in chosen.values():
        if metric.check is not None:
            metric.check()
    return chosen, []


def _choose_all(context: EvalContext) -> tuple[dict[str, Metric], list[str]]:
    """Every metric that can run, and a note on the others for each thing that they need."""
    able, lacking = dict[str, Metric](), dict[str, list[str]]()
    table = metrics_of(context, METRICS.entries(broken=say_once))
    for name, metric in table.items():
        if name.endswith(SUFFIXES):
            continue
        if missing := _all_missing(metric, context) or _missing_tool(metric):
            lacking.setdefault(missing, []).append(name)
        else:
            able[name] = metric
    notes = [f"--metrics all leaves out {', '.join(names)} ({missing})" for missing, names in lacking.items()]
    if context.several:
        notes.append(f"--metrics all leaves out {' and '.join(SUFFIXES)} of each metric (name them)")
    return able, [*notes, "name a metric that was left out to see what to type"] if lacking else notes


def _all_missing(metric: Metric, context: EvalContext) -> str:
    """Names everything that a metric needs and the context lacks; "" where all is there."""
    labels = [NEEDS[need].label for need in metric.needs if not NEEDS[need].has(context)]
    return f"needs {', '.join(labels)}" if labels else ""


def _missing_tool(metric: Metric) -> str | None:
    """Returns what the metric's check misses; None if nothing is missing."""
    try:
        if metric.check is not None:
            metric.check()
    except TellapartError as error:
        return str(error)
    return None


def of_dotted_path(path: str) -> Metric:
    """The metric behind ``my_metrics:shouting``: an entry, or a function of captions and references with its own name.

    Raises `UsageError` where the code may not run, is neither, or has the name of another metric.
    """
    part = load_allowed(path, "metric", f"metric '{path}'")
    if not isinstance(part, Metric) and not callable(part):
        raise UsageError(f"metric '{path}' is of type {type(part).__name__}; expected a function or a Metric")
    own = path.partition(":")[2]
    metric = part if isinstance(part, Metric) else Metric(name=own, factory=part, help=first_line(part))
    if metric.name in METRICS.builtin():
        raise UsageError(f"metric '{path}': there is a metric called '{metric.name}' already; rename it")
    return metric


def _of_file_sets(context: EvalContext) -> list[Metric]:
    found: list[Metric] = []
    for pools, sets in context.file_sets.items():
        found.append(recall(1, pools))
        if min(map(len, sets.sets)) > 5:  # five of five are always hits
            found.append(recall(5, pools))
        found.append(mean_rank(pools))
    return found


def _notes_on_few(table: Mapping[str, Metric], context: EvalContext) -> list[str]:
    few = [need for need in ("hundred", "two", "six") if context.scorer is not None and not NEEDS[need].has(context)]
    lacking: dict[str, list[str]] = {}
    for name, metric in table.items():
        if not name.endswith(SUFFIXES) and any(need in few for need in metric.needs):
            lacking.setdefault(str(metric.missing(context)), []).append(name)
    parts = [f"{', '.join(names)} ({missing})" for missing, names in lacking.items()]
    return [f"not computed, because of what they need: {'; '.join(parts)}"] if parts else []


def _keys(name: str, table: Mapping[str, Metric], context: EvalContext) -> list[str]:
    """The metrics that a name stands for: one, or of several those that can be had. Raises `UsageError`."""
    keys = resolve(name, table)
    if not keys:
        if _OF_FILE_SETS.fullmatch(name) or normalized(name) in ("truematch", "meanrank"):
            raise UsageError(f"metric '{name}' needs candidate sets of that name; add --bags FILE")
        if name.lower().endswith(SUFFIXES) and resolve(name.rpartition(".")[0], table):
            raise UsageError(f"metric '{name}' needs {NEEDS['several'].message}")
        if name in METRICS.installed():
            METRICS.find(name)  # raises: why it cannot be loaded
        raise UsageError(f"no metric is called '{name}'{suggestion(name, table)}")
    missing = {key: table[key].missing(context) for key in keys}
    able = [key for key in keys if missing[key] is None]
    if not able:
        raise UsageError(f"metric '{name}' needs {missing[keys[0]]}")
    return able


# What is given, checked and put in the order of the ids; and what is kept for galleries and notes.

_MARKED_BY = ("facts", "chair", "scorer", "sentences")  # whose marks a page shows, the first that was computed


def same_ids(systems: Mapping[str, Mapping[str, str | Sequence[str]]], items: Sequence[Item] | None) -> list[str]:
    """The ids in the order of the items, else of the first system. `UsageError` where a system's differ."""
    if not systems:
        raise UsageError("no captions to evaluate; add --captions FILE")
    for name in (HUMAN, CHANCE):
        if name in systems:
            raise UsageError(
                f"a system may not be called '{name}': that is the name of a reference system; rename the caption file"
            )
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


def references_of(
    ids: list[str], items: Sequence[Item] | None, references: Mapping[str, Sequence[str]] | None
) -> tuple[list[list[str]] | None, list[str]]:
    """References in the order of the ids: those given, else the items', and notes. An empty reference is none. None,
    with a note, where some pictures have none."""
    if references is None:
        if items is None or not any(item.references for item in items):
            return None, []
        references = {item.id: item.references for item in items}
    kept, notes = with_text({key: references.get(key, ()) for key in ids})
    all_references = list(kept.values())
    without = [key for key, texts in zip(ids, all_references, strict=True) if not texts]
    if without:
        many = f"{len(without)} pictures have no reference ({preview_ids(without)}): references are not used"
        return None, [*notes, many]
    return all_references, notes


def lists_of(name: str, captions: Mapping[str, str | Sequence[str]], ids: Sequence[str]) -> list[list[str]]:
    """The captions of each picture, in the order of the ids. `UsageError` where a picture has an empty list."""
    lists = [[text] if isinstance(text, str) else list(text) for text in (captions[key] for key in ids)]
    mute = [key for key, texts in zip(ids, lists, strict=True) if not texts]
    if mute:
        raise UsageError(
            f"'{name}' has an empty list of captions of {preview_ids(mute)}; give at least one, or an empty one"
        )
    return lists


def notes_on_instances(
    instances: Mapping[str, frozenset[str]], ids: Sequence[str], items: Sequence[Item] | None
) -> list[str]:
    """Returns a note on the pictures that the instances lack. Raises `UsageError` if they lack all."""
    if not instances:
        return []
    names = names_in(instances, ids, items)
    lacking = [id_ for id_, name in zip(ids, names, strict=True) if not name]
    if len(lacking) == len(ids):
        raise UsageError(
            f"instances has none of the {len(ids)} pictures ({preview_ids(lacking)}; it has "
            f"{preview_ids(list(instances))}); give the file of the same pictures, or leave it out"
        )
    few = f"{len(lacking)} of {len(ids)} pictures are not in the instances ({preview_ids(lacking)})"
    return [f"{few}: their objects are those of the references alone"] if lacking else []


def features_of(
    scorer: Scorer | str | None, given_ND: np.ndarray | None, items: Sequence[Item] | None
) -> np.ndarray | None:
    """The scorer's features of the items: those given, else from the feature store. Raises `UsageError`.

    None for a scorer that is not loaded yet.
    """
    if given_ND is None and items is not None and scorer is not None and not isinstance(scorer, str):
        from tellapart.features.store import FeatureStore

        given_ND = np.asarray(FeatureStore().features(items, scorer.encoder))
    if given_ND is not None:
        check_features(given_ND, "pictures")
    return given_ND


def keep_for_pages(
    results: Results, context: EvalContext, chosen: Sequence[str], slots: Mapping[str, list[CaptionSlot]]
) -> None:
    """Keeps for galleries and tables each system's captions, marks, and retrieval in look-alike sets and in files'."""
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


def notes_on_cider(chosen: Iterable[str], context: EvalContext) -> list[str]:
    """Returns a note where CIDEr's document frequencies say nothing: all pictures have the same references."""
    named = [name for name in ("cider", "cider_plain") if name in chosen]
    if not named or context.references is None or len({frozenset(texts) for texts in context.references}) > 1:
        return []
    why = "there is one picture" if len(context.ids) == 1 else "all pictures have the same references"
    return [f"{', '.join(named)}: 0 because {why}, so every n-gram is in every document; score more pictures together"]


def marks_of(context: EvalContext, slot: CaptionSlot) -> Sequence[Verdict]:
    """The verdicts on a slot's captions that a metric has made; () where none was computed."""
    found = (context.kept(("verdicts", name, id(slot))) for name in _MARKED_BY)
    return next((verdicts for verdicts in found if verdicts is not None), ())


def notes_on_cut_texts(contexts: Iterable[EvalContext]) -> list[str]:
    """Returns notes on texts that were too long for a scorer, for the language model or for an encoder of text."""
    notes = [note for where in contexts for note in [where.long_note()] if note]
    inputs = next(iter(contexts)).inputs
    for model, what in (
        (inputs.language_model, "their perplexity is of what fits"),
        (inputs.text_encoder, "their BERTScore is of what fits"),
        (inputs.query_encoder, "they are searched by what fits"),
    ):
        if model is not None and not isinstance(model, str) and model.cut_texts:
            notes.append(
                f"{model.cut_texts} texts are longer than the window of {model.window} tokens of {model.name}; {what}"
            )
    return notes
