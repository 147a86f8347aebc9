"""What changed: each metric's change as better, worse, unclear or neutral, and the summary sentence."""

from __future__ import annotations

from dataclasses import dataclass

from tellapart.metrics.statistics import format_p, is_clear
from tellapart.report.folder import Estimate, Pair, Results
from tellapart.report.words import Metric, arrange, decimals, describe, metric_of, number

# Systems that are yardsticks: they are shown, but a run is not judged by them unless there is nothing else.
YARDSTICKS = ("human", "chance", "random")
# The first of these that was measured is what the headline is about.
HEADLINE = ("recall@1.lookalike", "recall@1.truematch", "recall@1.random100", "recall@1", "listener_accuracy")
# Where several things got worse, the headline names these first.
COSTS = ("hallucination_rate", "attribute_precision", "repetition_rate", "binding_error_rate", "cider", "bleu4")


@dataclass(frozen=True)
class Change:
    """One metric from before to after; ``difference``, ``low`` and ``high`` are after minus before."""

    metric: Metric
    before: Estimate
    after: Estimate
    difference: float
    low: float | None
    high: float | None
    p: float | None
    places: int

    @property
    def clear(self) -> bool:
        """See `is_clear`; without a paired interval, whether the two systems' intervals lie apart."""
        if self.low is not None and self.high is not None:
            return is_clear(self.difference, self.low, self.high, self.p)
        a, b = self.before, self.after
        if None in (a.low, a.high, b.low, b.high):
            return False
        return is_clear(self.difference, b.low - a.high, b.high - a.low)  # type: ignore[operator]

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``unclear``, or ``neutral`` where neither direction is better."""
        if self.metric.direction == 0:
            return "neutral"
        if not self.clear:
            return "unclear"
        return "better" if self.difference * self.metric.direction > 0 else "worse"

    @property
    def values(self) -> str:
        """As in ``41.2 to 68.0``."""
        return f"{number(self.before.value, self.places)} to {number(self.after.value, self.places)}"

    @property
    def interval(self) -> str:
        """As in ``+22.1 to +31.0``; empty without a paired interval."""
        if self.low is None or self.high is None:
            return ""
        low, high = (number(x, self.places, signed=True) for x in (self.low, self.high))
        return f"{low} to {high}"

    @property
    def p_text(self) -> str:
        """As in ``p = 0.012`` or ``p < 0.001``; empty without a p-value."""
        text = "" if self.p is None else format_p(self.p)
        return text and (f"p < {text[1:]}" if text.startswith("<") else f"p = {text}")

    @property
    def by(self) -> str:
        """As in ``+26.8``."""
        return number(self.difference, self.places, signed=True)

    @property
    def setting(self) -> str:
        """As in ``n = 500, 10 candidates, chance 10.0``; empty but for recalls."""
        return self.metric.setting(self.before, self.after)

    @property
    def verb(self) -> str:
        """``rose`` or ``fell``."""
        return "rose" if self.difference > 0 else "fell"


@dataclass(frozen=True)
class Comparison:
    """System ``before`` against system ``after``, metric by metric, as the tables show them."""

    before: str
    after: str
    changes: tuple[Change, ...]

    def of(self, verdict: str) -> list[Change]:
        """The changes with this verdict, in the order of the table."""
        return [c for c in self.changes if c.verdict == verdict]

    def get(self, key: str) -> Change | None:
        """The change of the metric ``key``, if both systems have it."""
        return next((c for c in self.changes if c.metric.key == key), None)


def order(names: list[str]) -> list[str]:
    """Systems as the tables show them: before, after, others, and the yardsticks last."""
    place = {"before": 0, "after": 1, **{name: 3 + i for i, name in enumerate(YARDSTICKS)}}
    return sorted(names, key=lambda name: place.get(name, 2))


def compare(results: Results) -> Comparison | None:
    """The comparison that the page is about, or None where there are no two systems to compare."""
    pair = _base_pair(results)
    if pair is None:
        return None
    a, b = pair
    shared = (key for key in results.systems[a] if key in results.systems[b])
    found = [_change(results, a, b, m) for m in arrange(metric_of(results, key) for key in shared)]
    return Comparison(a, b, tuple(c for c in found if c is not None))


def _base_pair(results: Results) -> tuple[str, str] | None:
    names = order(list(results.systems))
    if "before" in names and "after" in names:
        return "before", "after"
    for pair in results.pairs:
        if pair.a in names and pair.b in names and not {pair.a, pair.b} & set(YARDSTICKS):
            return pair.a, pair.b
    own = [name for name in names if name not in YARDSTICKS]
    return (own[0], own[1]) if len(own) > 1 else None


def _change(results: Results, a: str, b: str, metric: Metric) -> Change | None:
    before, after = results.systems[a][metric.key], results.systems[b][metric.key]
    if before is None or after is None or before.value is None or after.value is None:
        return None
    pair = _find_pair(results, a, b, metric.key)
    difference = after.value - before.value if pair is None or pair.difference is None else pair.difference
    low, high, p = (pair.low, pair.high, pair.p) if pair else (None, None, None)
    places = decimals((before, after), (difference, low, high))
    return Change(metric, before, after, difference, low, high, p, places)


def _find_pair(results: Results, a: str, b: str, key: str) -> Pair | None:
    """The pair (a, b), or (b, a) turned round, so that its difference is always b minus a."""
    for pair in results.pairs:
        if pair.metric == key and (pair.a, pair.b) == (a, b):
            return pair
        if pair.metric == key and (pair.a, pair.b) == (b, a):
            turned = {"difference": _minus(pair.difference), "low": _minus(pair.high), "high": _minus(pair.low)}
            return pair.model_copy(update={"a": a, "b": b, **turned})
    return None


def _minus(x: float | None) -> float | None:
    return None if x is None else -x


def main_metric(keys: list[str]) -> str | None:
    """The metric that the headline is about: recall among look-alikes before recall among random pictures."""
    recalls = [key for key in keys if key.startswith("recall@1") and not describe(key).scorer]
    return next((key for key in (*HEADLINE, *recalls) if key in keys), None)


def headline(results: Results | None) -> str:
    """One sentence that says what changed, for the better and for the worse; its statistics are `statistics`."""
    if results is None or not any(results.systems.values()):
        return "This run has not been evaluated, so nothing can be said about what it changed."
    comparison = compare(results)
    if comparison is None or not comparison.changes:
        name, metric, estimate = _lone(results)
        sentence = f"{metric.name} is {number(estimate.value, decimals([estimate]))} for “{name}”"
        return f"{sentence[0].upper()}{sentence[1:]}; there is no second system to compare it with."
    key = main_metric([c.metric.key for c in comparison.changes])
    main = comparison.get(key) if key else None
    if main is None:
        better, worse = (len(comparison.of(v)) for v in ("better", "worse"))
        total = len(comparison.changes)
        return f"Of {total} measures {better} got better and {worse} got worse; none of them is a recall."
    what = f"{main.verb} from {main.values}" if main.clear else f"did not clearly change, {main.values}"
    sentence = f"{main.metric.name} {what}{_doubt(comparison, main)}; {_costs(comparison, main)}."
    return sentence[0].upper() + sentence[1:]


def statistics(results: Results | None) -> str:
    """The statistics of the number that the headline names; empty where it names none."""
    if results is None or not any(results.systems.values()):
        return ""
    comparison = compare(results)
    if comparison is None or not comparison.changes:
        _, metric, estimate = _lone(results)
        low, high = (number(x, decimals([estimate])) for x in (estimate.low, estimate.high))
        found = [f"95\u00a0% interval {low} to {high}" if estimate.low is not None else "", metric.setting(estimate)]
        return "; ".join(filter(None, found))
    key = main_metric([c.metric.key for c in comparison.changes])
    if key is None or (main := comparison.get(key)) is None:
        return ""
    interval = f"95\u00a0% interval {main.interval}" if main.interval else "no paired interval"
    p = "" if main.clear else main.p_text  # in older results it may be why an interval that leaves zero out is unclear
    return "; ".join(filter(None, [", ".join(filter(None, [main.by, interval, p])), main.setting]))


def _doubt(comparison: Comparison, main: Change) -> str:
    """A gain that a held-out scorer does not confirm may be reward hacking: the headline says so."""
    others = [
        c for c in comparison.changes if c.metric.scorer and c.metric.key == f"{main.metric.key}@{c.metric.scorer}"
    ]
    if main.verdict == "better" and any(c.verdict != "better" for c in others):
        return "; a second scorer does not confirm it"
    return ""


def _costs(comparison: Comparison, main: Change) -> str:
    worse = [c for c in comparison.of("worse") if c is not main]
    if not worse:
        if len(comparison.changes) == 1:
            return "nothing else was measured"
        return "nothing else that was measured got clearly worse"
    place = {key: i for i, key in enumerate(COSTS)}
    worse.sort(key=lambda c: place.get(c.metric.key, len(COSTS)))
    names = [c.metric.name for c in worse[:2]]
    if (rest := len(worse) - 2) > 0:
        names.append(f"{rest} more measure{'s' if rest > 1 else ''}")
    return f"{' and '.join([', '.join(names[:-1]), names[-1]] if len(names) > 1 else names)} got worse"


def _lone(results: Results) -> tuple[str, Metric, Estimate]:
    """The one system that there is, and its number for the headline."""
    name = next((n for n in order(list(results.systems)) if results.systems[n]), "")
    key = main_metric(list(results.systems[name])) or next(iter(results.systems[name]))
    return name, metric_of(results, key), results.systems[name][key] or Estimate()
