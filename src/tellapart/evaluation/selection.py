"""Which metrics an evaluation computes: all that it can, or those that people name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tellapart.errors import UsageError
from tellapart.evaluation.context import NEEDS, EvalContext
from tellapart.evaluation.metrics.scorer import mean_rank, recall
from tellapart.metrics.registry import METRICS, CaptionSetMetric, Metric, in_order
from tellapart.metrics.results import BEST, ORACLE, Candidates, MetricInfo
from tellapart.metrics.statistics import CaptionSlot, Measurement
from tellapart.models.plugins import is_dotted, load_allowed
from tellapart.utils.messages import say_once
from tellapart.utils.registry import first_line

# Metrics of one caption chosen among several of a picture: the best by the metric, or the scorer's choice.

SUFFIXES = (ORACLE, BEST)


@dataclass(frozen=True, kw_only=True)
class ChosenCaption(Metric):
    """A metric of one caption chosen for each picture: ``choose(context, slots) -> Measurement``."""

    choose: Callable[[EvalContext, Sequence[CaptionSlot]], Measurement]

    def measure(self, context: EvalContext, slots: Sequence[CaptionSlot]) -> Measurement | None:
        """The metric of a system; None where it has one caption of each picture."""
        return self.choose(context, slots) if len(slots) > 1 else None


def with_choices(metric: Metric) -> list[ChosenCaption]:
    """``METRIC.oracle`` and ``METRIC.best`` of a metric of one caption; none of a metric of several."""
    return [] if isinstance(metric, CaptionSetMetric) else [oracle(metric), best(metric)]


def oracle(metric: Metric) -> ChosenCaption:
    """The best of a picture's captions by the metric itself: what a perfect choice among them would score.

    The mean over pictures of the best caption's own number, also where the metric's corpus number is no mean.
    """

    def choose(context: EvalContext, slots: Sequence[CaptionSlot]) -> Measurement:
        measured = [metric.of_slot(context, slot) for slot in slots]
        values = [one.value_N for one in measured if one.value_N is not None]
        if not values:
            raise UsageError(f"{metric.name} has no number for a single caption, so no caption is the best by it")
        extreme = np.fmin if (metric.direction or metric.oracle) == "lower" else np.fmax
        return Measurement(extreme.reduce(values), weight_N=measured[0].weight_N)

    return _chosen(
        metric,
        ORACLE,
        choose,
        signature=lambda context: f"best-of-captions,mean-of-pictures|{metric.variant(context)}",
        label=f"{metric.title}, best caption",
        help=f"{metric.help}; of the best of each picture's captions by it",
        needs=(*metric.needs, "several"),
    )


def best(metric: Metric) -> ChosenCaption:
    """The metric of the caption that the scorer matches best with the picture: best-of-n, as a reranker would score.

    A further scorer (``eval_scorers``) measures the captions that the first one prefers.
    """

    def choose(context: EvalContext, slots: Sequence[CaptionSlot]) -> Measurement:
        return metric.of_slot(context, preferred(context, slots))

    return _chosen(
        metric,
        BEST,
        choose,
        signature=lambda context: f"best-by:{(context.primary or context).scorer_name()}|{metric.variant(context)}",
        label=f"{metric.title}, the scorer’s choice",
        help=f"{metric.help}; of the caption of each picture that the scorer prefers",
        needs=tuple(dict.fromkeys((*metric.needs, "pictures", "scorer", "several"))),
    )


def preferred(context: EvalContext, slots: Sequence[CaptionSlot]) -> CaptionSlot:
    """Of each picture's captions the one with the highest cosine with it by the first scorer; the earlier of equals."""
    first = context.primary or context

    def choose() -> CaptionSlot:
        score_SN = np.stack([np.einsum("nd,nd->n", first.text_features(slot), first.images) for slot in slots])
        choice = [slots[slot] for slot in score_SN.argmax(0)]
        captions = [slot.captions[row] for row, slot in enumerate(choice)]
        references = [slot.references[row] for row, slot in enumerate(choice) if slot.references is not None]
        return CaptionSlot(captions, references if len(references) == len(captions) else None)

    return first.once(("preferred", *map(id, slots)), choose)


def _chosen(
    metric: Metric,
    suffix: str,
    choose: Callable[[EvalContext, Sequence[CaptionSlot]], Measurement],
    *,
    signature: Callable[[EvalContext], str],
    label: str,
    help: str,
    needs: tuple[str, ...],
) -> ChosenCaption:
    return ChosenCaption(
        name=metric.name + suffix,
        factory=metric.factory,
        choose=choose,
        signature=signature,
        label=label,
        help=help,
        needs=needs,
        direction=metric.direction,
        digits=metric.digits,
        group=metric.group,
        check=metric.check,
        bounds=metric.bounds,
        short=metric.short,
    )


# What people call a metric: its key in any case, the COCO tools' name, the papers' name.

_ALIKE = 0.75  # below this, two names are no misspelling of each other: 'choir' is not 'cider'
_SHORTEST_START = 4  # letters of a name that may stand for the whole in a suggestion


def normalized(name: str) -> str:
    """A name without what people spell differently: case, blanks, hyphens, underscores, brackets."""
    return re.sub(r"[\s_(){}-]+", "", name.lower())


def resolve(name: str, table: Mapping[str, Metric]) -> list[str]:
    """The keys that a name stands for, in the order of the table; empty where it is no metric's name."""
    if name in table:
        return [name]
    wanted = normalized(name)
    if family := [key for key, metric in table.items() if wanted in metric.families and not key.endswith(SUFFIXES)]:
        return family
    suffix = next((suffix for suffix in SUFFIXES if wanted.endswith(suffix)), "")
    base = wanted.removesuffix(suffix)
    found = (key for key, metric in table.items() if base in (normalized(key), *metric.aliases))
    return [key + suffix for key in found if key + suffix in table][:1]


def suggestion(name: str, table: Mapping[str, Metric]) -> str:
    """A hint at the metric that was meant, such as ``; did you mean 'meteor'?``; else how to see them all."""
    wanted = normalized(name)
    names = {normalized(key): key for key in table}
    names |= {alias: key for key, metric in table.items() for alias in metric.aliases}
    starts = [known for known in names if len(wanted) >= _SHORTEST_START and known.startswith(wanted)]
    close = sorted(starts) or difflib.get_close_matches(wanted, names, n=1, cutoff=_ALIKE)
    return f"; did you mean '{names[close[0]]}'?" if close else "; type --metrics list to see them all"


_OF_FILE_SETS = re.compile(r"(recall@\d+|mean_rank)\.(bag\d+|hard|imagecode)")
_KEY = re.compile(r"(?P<base>(?:recall@\d+|[^@.]+)(?:\.[^@]+)?)(?:@(?P<scorer>.+))?")
_RECALL = re.compile(r"recall@(?P<k>\d+)(?:\.(?P<pools>.+))?")
_SIZE_IN_NAME = re.compile(r"recall@(\d+)\.(?:random|bag)(\d+)\b")


def metrics_of(context: EvalContext, registered: Iterable[Metric]) -> dict[str, Metric]:
    """By name the registered metrics, those of candidate sets of files, and those of one of several captions."""
    table = in_order([*registered, *_of_file_sets(context)])
    if context.several:
        table |= {choice.name: choice for metric in list(table.values()) for choice in with_choices(metric)}
    return table


def choose(names: Sequence[str] | None, context: EvalContext) -> tuple[dict[str, Metric], list[str]]:
    """The metrics to compute by name, and notes on those that the data are too few for.

    Without names: all that can be computed. Names are those that people use (`tellapart.evaluation.selection`) and
    dotted paths of functions. `UsageError` for an unknown name (with the nearest) and for a metric that lacks something
    (with the option to add).
    """
    if names is None:
        table = metrics_of(context, METRICS.entries(broken=say_once))
        able = {
            name: metric
            for name, metric in table.items()
            if metric.check is None and not name.endswith(SUFFIXES) and metric.missing(context) is None
        }
        return able, _notes_on_few(table, context)
    outside = {name: of_dotted_path(name) for name in names if is_dotted(name)}
    table = metrics_of(context, [*METRICS.builtin().values(), *outside.values()])
    names = [outside[name].name if name in outside else name for name in names]
    if not all(resolve(name, table) for name in names):
        table = metrics_of(context, [*METRICS.entries(broken=say_once), *outside.values()])
    chosen = {key: table[key] for name in names for key in _keys(name, table, context)}
    for metric in chosen.values():
        if metric.check is not None:
            metric.check()
    return chosen, []


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


def describe(key: str, candidates: Candidates | None = None) -> MetricInfo:
    """What reports say of a key of results such as ``recall@1.random100@second``, also of runs of 0.1.

    Without ``candidates`` the size that the key itself names. An unknown key is its own label.
    """
    if candidates is None and (named := _SIZE_IN_NAME.match(key)):
        size = int(named[2])
        candidates = Candidates(size, size, 100 * min(1.0, int(named[1]) / size))
    base = base_of(key)
    scorer = key[len(base) + 1 :]
    suffix = next((suffix for suffix in SUFFIXES if base.endswith(suffix)), "")
    metric = metric_of_key(base.removesuffix(suffix))
    if metric is None:
        return MetricInfo(base.replace("_", " "), "no explanation is on file for this one")
    choice = next((choice for choice in with_choices(metric) if suffix and choice.name.endswith(suffix)), metric)
    return choice.info(candidates, scorer)


# What `eval` prints unless metrics are named, the first five that were measured.
_MAIN = ("recall@1.lookalike", "recall@1.random100", "cider", "clipscore", "bleu4", "hallucination_rate", "length",
         "vocabulary", "repetition_rate", "rouge_l")  # fmt: skip
_ASKED = {
    "language_model",
    "text_encoder",
    "several",
    "clips",
}  # needs that an option or the data shows an interest in
MAIN_COUNT = 5


def main_metrics(keys: Iterable[str]) -> list[str]:
    """The keys of the five main metrics among those measured, each by every scorer that measured it.

    First what only an option, such as ``--bags``, or an installed package makes possible, then `_MAIN`, then others.
    """
    builtin = METRICS.builtin()

    def place(base: str) -> int:
        metric = builtin.get(base)
        asked = metric is None or bool(_ASKED & set(metric.needs))
        return -1 if asked else _MAIN.index(base) if base in _MAIN else len(_MAIN)

    keys = list(keys)
    main = sorted(dict.fromkeys(map(base_of, keys)), key=place)[:MAIN_COUNT]
    return [key for key in keys if base_of(key) in main]


def base_of(key: str) -> str:
    """A key of results without the name of a further scorer."""
    found = _KEY.fullmatch(key)
    return found["base"] if found else key


def metric_of_key(base: str) -> Metric | None:
    """The metric behind a key of results without suffixes; None for one that is not known here."""
    if base in (builtin := METRICS.builtin()):
        return builtin[base]
    if base.startswith("mean_rank."):
        return mean_rank(base.partition(".")[2])
    if found := _RECALL.fullmatch(base):
        return recall(int(found["k"]), found["pools"] or "")
    return METRICS.get(base)


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
    return [
        f"{name} is left out: it needs {metric.missing(context)}"
        for name, metric in table.items()
        if not name.endswith(SUFFIXES) and any(need in few for need in metric.needs)
    ]


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
