"""A metric: its function or statistics, its requirements, and how it measures a system's captions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.errors import TellapartError
from tellapart.metrics.corpus_scores import UNBOUNDED, Bounds, Corpus, Measurement, Recounted, Sums
from tellapart.metrics.metric_info import OTHER, Candidates, MetricInfo
from tellapart.metrics.result_keys import parse_key
from tellapart.metrics.slots import CaptionSlot, caption_lists, merge_slots
from tellapart.utils.registry import Direction, Entry

if TYPE_CHECKING:
    from tellapart.evaluation.context import EvalContext


Signature = Callable[["EvalContext"], str]


@dataclass(frozen=True, kw_only=True)
class Metric(Entry[Callable[..., Any]]):
    """A text metric: ``factory(captions, references) -> (corpus, value_N)``, where a caption without a value is NaN.

    The metric needs references if the factory's second parameter has no default. ``value_N`` is None if the metric is
    undefined for single captions. If the corpus score is not the mean of ``value_N``, ``stats(captions, references)``
    returns N×C numbers that can be summed over captions, and ``score`` maps sums, …×C, to scores in the factory's unit.
    For a count that grows with the number of captions, ``stats`` returns a list with one item per caption instead, and
    ``score`` maps the list to a function of caption weights (`tellapart.metrics.corpus_scores.Recounted`).

    label: the name in reports. May contain ``{size}``, which is replaced by the number of candidates.
    signature: the part of the signature after the name, or a function that computes this part from the context.
    scale: the factor by which values are multiplied.
    digits: the number of decimals.
    group: one of `GROUPS`.
    aliases: other names.
    families: names that stand for several metrics.
    check: a function that raises `UsageError` if a tool is missing. A metric with a check is computed only if requested
        by name.
    """

    signature: str | Signature = ""
    stats: Callable[..., np.ndarray | list[Any]] | None = None
    score: Callable[..., Any] | None = None
    scale: float = 1.0
    digits: int = 1
    group: str = OTHER
    aliases: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    check: Callable[[], object] | None = None
    oracle: Direction | None = None  # which caption `.oracle` selects if ``direction`` is not set
    short: str = ""  # the name in a signature whose other parts give the details
    bounds: Bounds | Callable[[EvalContext], Bounds] = UNBOUNDED  # of a single picture's value, for intervals
    pools: str = ""  # the candidate sets used
    chance: Callable[[EvalContext], np.ndarray] | None = None  # each picture's score for a blind guess

    def __post_init__(self) -> None:
        """Infers from the function whether a text metric needs references."""
        if type(self) is Metric and not self.needs and _reads_references(self.factory):
            object.__setattr__(self, "needs", ("references",))

    def of_slot(self, context: EvalContext, slot: CaptionSlot) -> Measurement:
        """Computes the metric for one caption per picture."""
        corpus, value_N = _checked(self.name, self.factory(slot.captions, slot.references), len(slot.captions))
        if value_N is not None:
            value_N = self.scale * value_N
        if self.stats is not None:
            references = slot.references or [[] for _ in slot.captions]
            return Measurement(value_N, self._corpus(self.stats(slot.captions, references), context))
        if value_N is None:
            raise TellapartError(
                f"metric '{self.name}' does not score single captions; register its statistics and score"
            )
        kept_N = value_N[~np.isnan(value_N)]
        if len(kept_N) and not np.isclose(self.scale * corpus, kept_N.mean()):
            raise TellapartError(
                f"metric '{self.name}': the corpus score is not the mean over captions; register its statistics "
                "and score"
            )
        return Measurement(value_N)

    def measure(self, context: EvalContext, slots: Sequence[CaptionSlot]) -> Measurement | None:
        """Measures a system and averages over a picture's captions. Returns None if the metric does not apply to the
        system.
        """
        return merge_slots([self.of_slot(context, slot) for slot in slots], slots)

    def _corpus(self, stats: np.ndarray | list[Any], context: EvalContext) -> Corpus:
        assert self.score is not None, f"metric '{self.name}' has statistics but no score function"
        score = self.score if self.scale == 1 else partial(_scaled, self.score, self.scale)
        if isinstance(stats, np.ndarray):
            return Sums(stats, score, self.bounds_in(context))
        return Recounted([stats], score)

    @property
    def for_eval_scorers(self) -> bool:
        """Returns whether additional scorers measure this metric too. The exact listener uses only the first scorer's
        sets.
        """
        return "scorer" in self.needs and "truth" not in self.needs

    def candidates(self, context: EvalContext) -> Candidates | None:
        """Describes the metric's candidate sets and a blind guess's score on them. Returns None for a metric without
        candidates.
        """
        if self.chance is None or not self.pools:
            return None
        sets = context.sets(self.pools)
        if not len(sets):
            return None
        chance_N = self.chance(context)
        known_N, questions_N = ~np.isnan(chance_N), sets.questions(len(chance_N))
        sizes = [len(members) for members in sets.sets]
        return Candidates(min(sizes), max(sizes), float(np.average(chance_N[known_N], weights=questions_N[known_N])))

    def tag(self, context: EvalContext) -> str:
        """Returns the name of the judge that computed the metric, or "" if the metric uses no judge. Results append it
        to the metric's name.
        """
        return ""

    def variant(self, context: EvalContext) -> str:
        """Returns the part of a signature that follows the name."""
        return self.signature if isinstance(self.signature, str) else self.signature(context)

    def bounds_in(self, context: EvalContext) -> Bounds:
        """Returns a picture's lowest and highest possible value."""
        return self.bounds(context) if callable(self.bounds) else self.bounds

    def info(self, candidates: Candidates | None = None, scorer: str = "") -> MetricInfo:
        """Returns the metric's label and help for reports.

        candidates: the candidates of a recall [default: those that the metric's name states].
        scorer: the additional scorer that measured the metric, if any.
        """
        size = str(candidates or parse_key(self.name).candidates or "")
        label, help = (" ".join(text.replace("{size}", size).split()) for text in (self.title, self.help))
        if scorer:
            label, help = f"{label}, scorer “{scorer}”", f"{help}, measured by the scorer “{scorer}”"
        return MetricInfo(label, help, self.direction, self.group, self.digits)


class ContextMetric(Metric):
    """A metric that needs more than text: ``factory(context, slot) -> Measurement``."""

    def of_slot(self, context: EvalContext, slot: CaptionSlot) -> Measurement:
        """Computes the metric for one caption per picture."""
        measured = self.factory(context, slot)
        if not isinstance(measured, Measurement):
            raise TellapartError(f"metric '{self.name}' returned {measured!r:.60}; expected a Measurement")
        return measured


@dataclass(frozen=True, kw_only=True)
class CaptionSetMetric(Metric):
    """A metric computed from all of a picture's captions: ``factory(caption_lists)`` and ``stats(caption_lists)``."""

    def measure(self, context: EvalContext, slots: Sequence[CaptionSlot]) -> Measurement | None:
        """Measures a system. Returns None if it has only one caption per picture."""
        if len(slots) < 2:
            return None
        lists = caption_lists(slots)
        value_N = _checked(self.name, self.factory(lists), len(lists))[1]
        corpus = None if self.stats is None else self._corpus(self.stats(lists), context)
        return merge_slots([Measurement(value_N, corpus)], slots[:1])


def _scaled(score: Callable[..., Any], scale: float, stats: Any) -> Any:
    """Multiplies the result of ``score`` by ``scale``. For a list of statistics, this is a function of weights."""
    found = score(stats)
    return scale * found if not callable(found) else lambda weight_N: scale * found(weight_N)


def _checked(name: str, found: Any, count: int) -> tuple[float, np.ndarray | None]:
    """Validates a metric's result. Raises `TellapartError` unless it consists of a number and either None or ``count``
    values.
    """
    try:
        corpus, values = found
        number, value_N = float(corpus), None if values is None else np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        number, value_N = 0.0, np.zeros((0, 0))
    if value_N is not None and value_N.shape != (count,):
        raise TellapartError(
            f"metric '{name}' returned {' '.join(repr(found).split()):.60}; expected (corpus, values): corpus is a "
            f"number; values is None or an array of {count} numbers, one per caption"
        )
    return number, value_N


def _reads_references(function: Callable[..., Any]) -> bool:
    parameters = list(inspect.signature(function).parameters.values())
    return len(parameters) > 1 and parameters[1].default is inspect.Parameter.empty
