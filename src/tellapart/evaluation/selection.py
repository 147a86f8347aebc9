"""Metrics of one caption selected from several, the metrics of result keys, and the list of all metrics
(``tellapart eval --metrics list``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import rich
import rich.table
from rich import box

from tellapart.errors import UsageError
from tellapart.evaluation.context import NEEDS, EvalContext
from tellapart.evaluation.metrics.scorer import mean_rank, recall
from tellapart.metrics.keys import parse_key
from tellapart.metrics.registry import METRICS, SUFFIXES, CaptionSetMetric, Metric, in_order
from tellapart.metrics.results import BEST, ORACLE, Candidates, MetricInfo
from tellapart.metrics.slots import CaptionSlot
from tellapart.metrics.statistics import Measurement
from tellapart.utils.messages import say

# Metrics of one caption selected from several of a picture: the best by the metric, or the scorer's choice.


@dataclass(frozen=True, kw_only=True)
class ChosenCaption(Metric):
    """A metric of one selected caption per picture: ``choose(context, slots) -> Measurement``."""

    choose: Callable[[EvalContext, Sequence[CaptionSlot]], Measurement]

    def measure(self, context: EvalContext, slots: Sequence[CaptionSlot]) -> Measurement | None:
        """Measures a system. Returns None if it has only one caption per picture."""
        return self.choose(context, slots) if len(slots) > 1 else None


def with_choices(metric: Metric) -> list[ChosenCaption]:
    """Returns ``METRIC.oracle`` and ``METRIC.best`` for a single-caption metric, else nothing."""
    return [] if isinstance(metric, CaptionSetMetric) else [oracle(metric), best(metric)]


def oracle(metric: Metric) -> ChosenCaption:
    """Returns the metric of each picture's best caption by the metric itself, the upper bound of any selection.

    It averages the best captions' scores over pictures, even if the metric's corpus score is not a mean.
    """

    def choose(context: EvalContext, slots: Sequence[CaptionSlot]) -> Measurement:
        measured = [metric.of_slot(context, slot) for slot in slots]
        values = [one.value_N for one in measured if one.value_N is not None]
        if not values:
            raise UsageError(f"{metric.name} does not score single captions, so it cannot select the best caption")
        extreme = np.fmin if (metric.direction or metric.oracle) == "lower" else np.fmax
        return Measurement(extreme.reduce(values), weight_N=measured[0].weight_N)

    return _chosen(
        metric,
        ORACLE,
        choose,
        signature=lambda context: f"best-of-captions,mean-of-pictures|{metric.variant(context)}",
        label=f"{metric.title}, best caption",
        help=f"{metric.help}; for the best of each picture's captions according to this metric",
        needs=(*metric.needs, "several"),
    )


def best(metric: Metric) -> ChosenCaption:
    """Returns the metric of the caption that the scorer prefers for the picture: best-of-n reranking.

    A further scorer (``eval_scorers``) measures the captions that the first scorer prefers.
    """

    def choose(context: EvalContext, slots: Sequence[CaptionSlot]) -> Measurement:
        return metric.of_slot(context, preferred(context, slots))

    return _chosen(
        metric,
        BEST,
        choose,
        signature=lambda context: f"best-by:{(context.primary or context).scorer_name()}|{metric.variant(context)}",
        label=f"{metric.title}, the scorer’s choice",
        help=f"{metric.help}; for the caption of each picture that the scorer prefers",
        needs=tuple(dict.fromkeys((*metric.needs, "pictures", "scorer", "several"))),
    )


def preferred(context: EvalContext, slots: Sequence[CaptionSlot]) -> CaptionSlot:
    """Selects each picture's caption with the highest cosine by the first scorer, the earlier one in case of ties."""
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
        pools=metric.pools,
    )


def describe(key: str, candidates: Candidates | None = None) -> MetricInfo:
    """Returns the label and help of a key of results such as ``recall@1.random100@second``.

    Without ``candidates``, uses the size given in the key. An unknown key is its own label.
    """
    parsed = parse_key(key)
    base = parsed.base
    suffix = next((suffix for suffix in SUFFIXES if base.endswith(suffix)), "")
    metric = metric_of_key(base.removesuffix(suffix))
    if metric is None:
        return MetricInfo(base.replace("_", " "), "unknown metric")
    choice = next((choice for choice in with_choices(metric) if suffix and choice.name.endswith(suffix)), metric)
    return choice.info(candidates or parsed.candidates, parsed.scorer)


# `eval` prints the first five measured ones of these, unless metrics are named.
_MAIN = ("recall@1.lookalike", "recall@1.random100", "cider", "clipscore", "bleu4", "hallucination_rate", "length",
         "vocabulary", "repetition_rate", "rouge_l")  # fmt: skip
_ASKED = {
    "language_model",
    "text_encoder",
    "queries",
    "several",
    "clips",
}  # requirements whose presence shows that the user is interested
MAIN_COUNT = 5


def main_metrics(keys: Iterable[str]) -> list[str]:
    """Returns the keys of the five main metrics among the measured ones, each for all scorers that measured it.

    First come metrics that need an option such as ``--bags`` or an installed package, then `_MAIN`, then others.
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
    """Returns a result key without the name of a further scorer."""
    return parse_key(key).base


def metric_of_key(base: str) -> Metric | None:
    """Returns the metric of a result key without suffixes, or None if unknown."""
    if base in (builtin := METRICS.builtin()):
        return builtin[base]
    if base.startswith("mean_rank."):
        return mean_rank(base.partition(".")[2])
    if (parsed := parse_key(base)).k is not None:
        return recall(parsed.k, parsed.pools)
    return METRICS.get(base)


HEADS = ("metric", "also", "label", "meaning", "better", "needs")


@dataclass(frozen=True)
class Listed:
    """A listed metric: key, other names (its own or of families), meaning, and requirements."""

    name: str
    also: tuple[str, ...]
    label: str
    meaning: str
    direction: str | None
    needs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns ``{"name", "also", "label", "meaning", "direction", "needs"}``."""
        return asdict(self)

    def cells(self) -> list[str]:
        """Returns a row under `HEADS`."""
        return [
            self.name,
            ", ".join(self.also),
            self.label,
            self.meaning,
            self.direction or "–",
            ", ".join(self.needs),
        ]


def list_metrics() -> list[Listed]:
    """Returns all metrics by group, including those of installed packages; reports broken ones on stderr."""
    return [listed(metric) for metric in in_order(METRICS.entries(broken=say)).values()]


def listed(metric: Metric) -> Listed:
    """Returns the list entry of a metric."""
    info = metric.info()
    needs = tuple(NEEDS[need].label for need in metric.needs) or ("captions",)
    return Listed(metric.name, (*metric.aliases, *metric.families), info.label, info.help, info.direction, needs)


def metric_table(metrics: Sequence[Listed]) -> rich.table.Table:
    """Formats the list for the terminal."""
    shown = rich.table.Table(box=box.SIMPLE_HEAD, title="metrics; --bags FILE adds recall and mean rank in its sets")
    for head in HEADS:
        shown.add_column(head, overflow="fold")
    for metric in metrics:
        shown.add_row(*metric.cells())
    return shown


def metric_markdown(metrics: Sequence[Listed]) -> str:
    """Formats the list as the table in ``docs/reference/metrics.md``."""
    rows = [HEADS, ("---",) * len(HEADS), *(metric.cells() for metric in metrics)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)
