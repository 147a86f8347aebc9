"""Compares systems metric by metric. The verdict on each change is better, worse, unclear or neutral."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tellapart.metrics.intervals import Interval
from tellapart.metrics.paired_tests import Difference
from tellapart.metrics.result_cells import format_p, places_for
from tellapart.metrics.result_keys import parse_key
from tellapart.metrics.results import Results
from tellapart.report.number_text import format_number
from tellapart.report.shown_metric import ShownMetric, arrange, metric_of

# Reference systems. They are shown, but a run is compared with them only if there is no other system.
YARDSTICKS = ("human", "chance", "random")
BEFORE_AFTER = ("before", "after")
# The headline is about the first of these metrics that was measured.
HEADLINE = ("recall@1.lookalike", "recall@1.truematch", "recall@1.random100", "recall@1", "listener_accuracy")


@dataclass(frozen=True)
class Change:
    """The change in one metric from ``before`` to ``after``. ``paired``: the paired difference, after minus before."""

    metric: ShownMetric
    before: Interval
    after: Interval
    paired: Difference

    @property
    def difference(self) -> float:
        """Returns the difference, after minus before."""
        return self.after.value - self.before.value if math.isnan(self.paired.value) else self.paired.value

    @property
    def verdict(self) -> str:
        """Returns ``better``, ``worse`` or ``unclear``, or ``neutral`` if neither direction is better. Without a paired
        test, nothing is clear.
        """
        if self.metric.direction == 0:
            return "neutral"
        if not self.paired.clear:
            return "unclear"
        return "better" if self.difference * self.metric.direction > 0 else "worse"

    @property
    def values(self) -> str:
        """Formats both values, e.g. ``41.2 to 68.0``."""
        return " to ".join(format_number(x.value, self.metric.digits) for x in (self.before, self.after))

    def _signed(self, x: float) -> str:
        """Formats a difference with enough decimals that no nonzero number is shown as zero."""
        places = places_for(self.metric.digits, (self.paired.value, self.paired.low, self.paired.high))
        return format_number(x, places, signed=True)

    @property
    def by(self) -> str:
        """Formats the difference, e.g. ``+26.8``."""
        return self._signed(self.difference)

    @property
    def interval(self) -> str:
        """Formats the paired interval, e.g. ``+22.1 to +31.0``. Returns "" if there is no paired interval."""
        ends = (self.paired.low, self.paired.high)
        return "" if any(map(math.isnan, ends)) else " to ".join(map(self._signed, ends))

    @property
    def p_text(self) -> str:
        """Formats the p-value, e.g. ``p = 0.012`` or ``p < 0.001``. Returns "" if there is no p-value."""
        name, p = ("p", self.paired.p) if math.isnan(self.paired.p_holm) else ("p by Holm", self.paired.p_holm)
        if math.isnan(p):
            return ""
        text = format_p(p)
        return f"{name} < {text[1:]}" if text.startswith("<") else f"{name} = {text}"


@dataclass(frozen=True)
class BeforeAfter:
    """The comparison of the systems ``before`` and ``after``, metric by metric, as shown in the tables."""

    before: str
    after: str
    changes: list[Change]

    @property
    def of_training(self) -> bool:
        """Returns whether the two systems are a captioner before and after training."""
        return (self.before, self.after) == BEFORE_AFTER

    def of(self, verdict: str) -> list[Change]:
        """Returns the changes with this verdict, in table order."""
        return [c for c in self.changes if c.verdict == verdict]

    def get(self, key: str | None) -> Change | None:
        """Returns the change in the metric ``key``, or None unless both systems have this metric."""
        return next((c for c in self.changes if c.metric.key == key), None)


def order(names: list[str]) -> list[str]:
    """Sorts systems for tables: before, after, other systems, reference systems."""
    place = {"before": 0, "after": 1, **{name: 3 + i for i, name in enumerate(YARDSTICKS)}}
    return sorted(names, key=lambda name: place.get(name, 2))


def compare(results: Results) -> BeforeAfter | None:
    """Returns the comparison for the headline, or None if there are fewer than two systems."""
    return next(iter(comparisons(results)), None)


def comparisons(results: Results) -> list[BeforeAfter]:
    """Returns the comparisons of pairs of systems, starting with the headline's pair. Excludes reference systems.

    The headline compares the systems before and after training if both exist. Otherwise, it compares the first system
    with whichever other system has the best value in the main metric.
    """
    names = [name for name in order(list(results.systems)) if name not in YARDSTICKS]
    tested = dict.fromkeys((pair.a, pair.b) for pair in results.pairs)
    pairs = [pair for pair in tested if set(pair) <= set(names)]
    if set(BEFORE_AFTER) <= set(names):
        first = BEFORE_AFTER
    elif pairs:
        first = (pairs[0][0], _best(results, [b for a, b in pairs if a == pairs[0][0]]))
    elif len(names) > 1:
        first = (names[0], names[1])
    else:
        return []
    others = [pair for pair in pairs if set(pair) != set(first)]
    return [_compare(results, *pair) for pair in (first, *others)]


def _best(results: Results, names: list[str]) -> str:
    """Returns the system with the best value in the main metric, or the first system if no system has a value."""
    key = main_metric([key for name in names for key in results.systems[name]])
    values = {name: found[key].value for name in names if key in (found := results.systems[name])}
    return max(values, key=lambda name: values[name], default=names[0])


def _compare(results: Results, a: str, b: str) -> BeforeAfter:
    """Compares two systems. Negates a paired difference if the stored pair is (b, a)."""
    before, after = results.systems[a], results.systems[b]
    paired = {pair.metric: pair.difference.turned() for pair in results.pairs if (pair.a, pair.b) == (b, a)}
    paired |= {pair.metric: pair.difference for pair in results.pairs if (pair.a, pair.b) == (a, b)}
    metrics = arrange(metric_of(results, key) for key in before if key in after)
    changes = [Change(m, before[m.key], after[m.key], paired.get(m.key, Difference())) for m in metrics]
    return BeforeAfter(a, b, [c for c in changes if not (math.isnan(c.before.value) or math.isnan(c.after.value))])


def main_metric(keys: list[str]) -> str | None:
    """Returns the headline's metric, or None if no recall was measured. Recall among look-alikes takes precedence over
    recall among random pictures.
    """
    recalls = [key for key in keys if key.startswith("recall@1") and not parse_key(key).scorer]
    return next((key for key in (*HEADLINE, *recalls) if key in keys), None)
