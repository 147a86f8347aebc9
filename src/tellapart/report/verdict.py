"""Classifies the change in each metric as better, worse, unclear or neutral, and writes the headline of a page."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tellapart.metrics.intervals import Interval
from tellapart.metrics.paired_tests import Difference
from tellapart.metrics.result_cells import format_p, places_for
from tellapart.metrics.results import Results
from tellapart.report.shown import ShownMetric, arrange, describe, format_number, metric_of

# Reference systems. They are shown, but a run is compared with them only if there is no other system.
YARDSTICKS = ("human", "chance", "random")
BEFORE_AFTER = ("before", "after")
# The headline is about the first of these that was measured.
HEADLINE = ("recall@1.lookalike", "recall@1.truematch", "recall@1.random100", "recall@1", "listener_accuracy")
# If several metrics got worse, the headline lists these first.
COSTS = ("hallucination_rate", "attribute_precision", "repetition_rate", "binding_error_rate", "cider", "bleu4")


@dataclass(frozen=True)
class Change:
    """The change in one metric from before to after. ``paired`` is the paired difference, after minus before."""

    metric: ShownMetric
    before: Interval
    after: Interval
    paired: Difference
    places: int

    @property
    def difference_places(self) -> int:
        """Returns a number of decimals at which no nonzero bound of the difference is shown as zero."""
        return places_for(self.places, (self.paired.value, self.paired.low, self.paired.high))

    @property
    def difference(self) -> float:
        """Returns after minus before."""
        return self.after.value - self.before.value if math.isnan(self.paired.value) else self.paired.value

    @property
    def clear(self) -> bool:
        """Returns `Difference.clear`; False without a paired test."""
        return self.paired.clear

    @property
    def verdict(self) -> str:
        """Returns ``better``, ``worse`` or ``unclear``; ``neutral`` if neither direction is better."""
        if self.metric.direction == 0:
            return "neutral"
        if not self.clear:
            return "unclear"
        return "better" if self.difference * self.metric.direction > 0 else "worse"

    @property
    def values(self) -> str:
        """Formats both values, e.g. ``41.2 to 68.0``."""
        return f"{format_number(self.before.value, self.places)} to {format_number(self.after.value, self.places)}"

    @property
    def interval(self) -> str:
        """Formats the paired interval, e.g. ``+22.1 to +31.0``; "" if there is none."""
        if math.isnan(self.paired.low) or math.isnan(self.paired.high):
            return ""
        low, high = (format_number(x, self.difference_places, signed=True) for x in (self.paired.low, self.paired.high))
        return f"{low} to {high}"

    @property
    def p_text(self) -> str:
        """Formats the p-value, e.g. ``p = 0.012`` or ``p < 0.001``; "" if there is no p-value."""
        corrected = not math.isnan(self.paired.p_holm)
        p = self.paired.p_holm if corrected else self.paired.p
        text = "" if math.isnan(p) else format_p(p)
        name = "p by Holm" if corrected else "p"
        return text and (f"{name} < {text[1:]}" if text.startswith("<") else f"{name} = {text}")

    @property
    def by(self) -> str:
        """Formats the difference, e.g. ``+26.8``."""
        return format_number(self.difference, self.difference_places, signed=True)

    @property
    def setting(self) -> str:
        """Returns the setting for a recall, e.g. ``n = 500, 10 candidates, chance 10.0``; "" for other metrics."""
        return self.metric.setting(self.before, self.after)

    @property
    def verb(self) -> str:
        """Returns ``rose`` or ``fell``."""
        return "rose" if self.difference > 0 else "fell"


@dataclass(frozen=True)
class BeforeAfter:
    """The comparison of the systems ``before`` and ``after``, metric by metric, as shown in the tables."""

    before: str
    after: str
    changes: tuple[Change, ...]

    @property
    def of_training(self) -> bool:
        """Returns whether one system was trained from the other."""
        return (self.before, self.after) == BEFORE_AFTER

    def of(self, verdict: str) -> list[Change]:
        """Returns the changes with this verdict, in the order of the table."""
        return [c for c in self.changes if c.verdict == verdict]

    def get(self, key: str) -> Change | None:
        """Returns the change in the metric ``key``; None unless both systems have it."""
        return next((c for c in self.changes if c.metric.key == key), None)


def order(names: list[str]) -> list[str]:
    """Sorts systems for tables: before, after, other systems, reference systems."""
    place = {"before": 0, "after": 1, **{name: 3 + i for i, name in enumerate(YARDSTICKS)}}
    return sorted(names, key=lambda name: place.get(name, 2))


def compare(results: Results) -> BeforeAfter | None:
    """Returns the comparison for the headline; None if there are fewer than two systems."""
    return next(iter(comparisons(results)), None)


def comparisons(results: Results) -> list[BeforeAfter]:
    """Returns the compared pairs of systems, the headline's pair first. Excludes pairs with a reference system.

    The headline compares before and after training if both exist, otherwise the first system with the best other system
    in the main metric.
    """
    tested = dict.fromkeys((pair.a, pair.b) for pair in results.pairs if not {pair.a, pair.b} & set(YARDSTICKS))
    pairs = [pair for pair in tested if set(pair) <= set(results.systems)]
    names = [name for name in order(list(results.systems)) if name not in YARDSTICKS]
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
    """Returns the system with the best value of the main metric; the first system if none has a value."""
    key = main_metric([key for name in names for key in results.systems[name]])
    valued = [name for name in names if key in results.systems[name]]
    return max(valued, key=lambda name: results.systems[name][str(key)].value, default=names[0])


def _compare(results: Results, a: str, b: str) -> BeforeAfter:
    shared = (key for key in results.systems[a] if key in results.systems[b])
    found = [_change(results, a, b, m) for m in arrange(metric_of(results, key) for key in shared)]
    return BeforeAfter(a, b, tuple(c for c in found if c is not None))


def _change(results: Results, a: str, b: str, metric: ShownMetric) -> Change | None:
    before, after = results.systems[a][metric.key], results.systems[b][metric.key]
    if math.isnan(before.value) or math.isnan(after.value):
        return None
    found = _difference(results, a, b, metric.key)
    return Change(metric, before, after, found, metric.digits)


def _difference(results: Results, a: str, b: str, key: str) -> Difference:
    """Returns the paired difference b minus a (negated if the stored pair is (b, a)); NaN if there is none."""
    for pair in results.pairs:
        found = pair.difference
        if pair.metric == key and (pair.a, pair.b) == (a, b):
            return found
        if pair.metric == key and (pair.a, pair.b) == (b, a):
            return found.turned()
    return Difference()


def main_metric(keys: list[str]) -> str | None:
    """Returns the headline's metric. Recall among look-alikes takes precedence over recall among random pictures."""
    recalls = [key for key in keys if key.startswith("recall@1") and not describe(key).scorer]
    return next((key for key in (*HEADLINE, *recalls) if key in keys), None)


def headline(results: Results | None) -> str:
    """Returns one sentence on what got better and what got worse. `statistics` returns its numbers."""
    if results is None or not any(results.systems.values()):
        return "This run has not been evaluated, so there are no results to compare."
    comparison = compare(results)
    if comparison is None or not comparison.changes:
        name, metric, estimate = _lone(results)
        value = format_number(estimate.value, metric.digits)
        return _sentence(f"{metric.name} is {value} for “{name}”; there is no other system to compare with")
    key = main_metric([c.metric.key for c in comparison.changes])
    main = comparison.get(key) if key else None
    if main is None:
        return _sentence("; ".join(_tally(one) for one in comparisons(results)))
    if comparison.of_training:
        what = f"{main.verb} from {main.values}" if main.clear else f"did not clearly change, {main.values}"
        return _sentence(f"{main.metric.name} {what}{_doubt(comparison, main)}; {_costs(comparison, main)}")
    values = _values(results, comparison, main)
    what = f"{main.metric.name}: {values}" + ("" if main.clear else ", no clear difference")
    return _sentence(f"{what}{_doubt(comparison, main)}; {_costs(comparison, main)}")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _values(results: Results, comparison: BeforeAfter, main: Change) -> str:
    """Formats the value of each system, highest first, e.g. ``68.0 (“b”), 41.2 (“a”)``."""
    pair = {name: found[main.metric.key].value for name, found in results.systems.items()
            if name not in YARDSTICKS and main.metric.key in found}  # fmt: skip
    ranked = sorted(pair, key=lambda name: -pair[name])
    return ", ".join(f"{format_number(pair[name], main.places)} (“{name}”)" for name in ranked)


def _tally(comparison: BeforeAfter) -> str:
    better, worse, total = *(len(comparison.of(v)) for v in ("better", "worse")), len(comparison.changes)
    measures = f"{total} measure{'s' if total > 1 else ''}"
    if comparison.of_training:
        return f"of {measures} {better} got better and {worse} got worse"
    return f"of {measures} “{comparison.after}” is better than “{comparison.before}” in {better} and worse in {worse}"


def statistics(results: Results | None) -> str:
    """Returns the statistics for the headline's number; "" if there are none."""
    if results is None or not any(results.systems.values()):
        return ""
    comparison = compare(results)
    if comparison is None or not comparison.changes:
        _, metric, estimate = _lone(results)
        low, high = (format_number(x, metric.digits) for x in (estimate.low, estimate.high))
        found = [
            f"95% interval {low} to {high}" if not math.isnan(estimate.low) else "",
            metric.setting(estimate),
        ]
        return "; ".join(filter(None, found))
    key = main_metric([c.metric.key for c in comparison.changes])
    if key is None or (main := comparison.get(key)) is None:
        return ""
    interval = f"95% interval {main.interval}" if main.interval else "no paired interval"
    return "; ".join(filter(None, [", ".join(filter(None, [main.by, interval, main.p_text])), main.setting]))


def _doubt(comparison: BeforeAfter, main: Change) -> str:
    """Returns a caveat if a held-out scorer does not confirm the gain, which may then be reward hacking."""
    others = [
        c for c in comparison.changes if c.metric.scorer and c.metric.key == f"{main.metric.key}@{c.metric.scorer}"
    ]
    if main.verdict == "better" and any(c.verdict != "better" for c in others):
        return "; a second scorer does not confirm this"
    return ""


def _costs(comparison: BeforeAfter, main: Change) -> str:
    worse = [c for c in comparison.of("worse") if c is not main]
    if not worse:
        if len(comparison.changes) == 1:
            return "no other metric was measured"
        if comparison.of_training:
            return "no other metric clearly got worse"
        return f"“{comparison.after}” is not clearly worse in any other metric"
    place = {key: i for i, key in enumerate(COSTS)}
    worse.sort(key=lambda c: place.get(c.metric.key, len(COSTS)))
    names = [c.metric.name for c in worse[:2]]
    if (rest := len(worse) - 2) > 0:
        names.append(f"{rest} more measure{'s' if rest > 1 else ''}")
    which = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"{which} got worse" if comparison.of_training else f"“{comparison.after}” is worse in {which}"


def _lone(results: Results) -> tuple[str, ShownMetric, Interval]:
    """Returns the only system, its metric and its value for the headline."""
    name = next((n for n in order(list(results.systems)) if results.systems[n]), "")
    key = main_metric(list(results.systems[name])) or next(iter(results.systems[name]))
    return name, metric_of(results, key), results.systems[name][key]
