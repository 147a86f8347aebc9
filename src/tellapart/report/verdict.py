"""Metrics in words: what a key of ``results.json`` means, and which direction is better.

Which results may be ranked against each other: those of the same pictures, measured in the same way.

What changed: each metric's change as better, worse, unclear or neutral, and the summary sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tellapart.metrics.results import GROUPS, OTHER, Candidates, MetricInfo, Results
from tellapart.metrics.statistics import Difference, Interval, format_p, places_for

MINUS = "\u2212"


@dataclass(frozen=True)
class ShownMetric:
    """A metric as reports show it.

    ``direction``: +1 where higher is better, -1 where lower is, 0 where neither is. ``scorer``: the held-out scorer
    that measured it; empty for the first scorer.
    """

    key: str
    name: str
    explain: str
    direction: int
    group: str
    scorer: str = ""
    candidates: Candidates | None = None

    @property
    def retrieval(self) -> bool:
        """Returns whether it is a retrieval metric, which is shown with the number of candidates and chance."""
        return self.candidates is not None or bool(_RETRIEVAL.match(self.key))

    def setting(self, *estimates: Interval | None) -> str:
        """The setting of a recall, as far as the results have it: ``n = 500, 10 candidates, chance 10.0``."""
        if not self.retrieval:
            return ""
        counts = sorted({e.n for e in estimates if e is not None and (e.n or math.isnan(e.value))})
        parts = [f"n = {' and '.join(f'{n:,}' for n in counts)}"] if counts else []
        if self.candidates is not None:
            parts += [f"{size_text(self.candidates)} candidates", f"chance {self.candidates.chance:.1f}"]
        return ", ".join(parts)

    @property
    def base(self) -> str:
        """The key without the suffix of a held-out scorer."""
        return self.key.removesuffix(f"@{self.scorer}") if self.scorer else self.key


_RETRIEVAL = re.compile(r"recall@\d|mean_rank\b|listener_accuracy")
_NAMED_SIZE = re.compile(r"recall@(\d+)\.(?:random|bag)(\d+)\b")
_KEY = re.compile(r"(?P<base>(?:recall@\d+|[^@.]+)(?:\.[^@]+)?)(?:@(?P<scorer>.+))?")


def size_text(candidates: Candidates) -> str:
    """As in ``10``, or ``7–10`` where sets differ in size."""
    fewest, most = candidates.fewest, candidates.most
    return f"{fewest:,}" if fewest == most else f"{fewest:,}–{most:,}"


def split_key(key: str) -> tuple[str, str]:
    """Returns a key of results without the name of a further scorer, and that name."""
    found = _KEY.fullmatch(key)
    return (found["base"], found["scorer"] or "") if found else (key, "")


def named_candidates(key: str) -> Candidates | None:
    """Returns the candidates whose number a key names, such as ``recall@1.random100``."""
    if not (named := _NAMED_SIZE.match(key)):
        return None
    k, size = int(named[1]), int(named[2])
    return Candidates(size, size, 100 * min(1.0, k / size))


def describe(key: str, candidates: Candidates | None = None, info: MetricInfo | None = None) -> ShownMetric:
    """The metric behind a key such as ``recall@1.random100@held-out``.

    ``info``: what the results say of it; a key without is its own name. ``candidates``: by default the number that the
    key names.
    """
    base, scorer = split_key(key)
    info = info or MetricInfo(label=base.replace("_", " "))
    direction = {"higher": 1, "lower": -1}.get(info.direction or "", 0)
    group = info.group if info.group in GROUPS else OTHER
    return ShownMetric(key, info.label, info.help, direction, group, scorer, candidates or named_candidates(key))


def metric_of(results: Results, key: str) -> ShownMetric:
    """The metric of a key of these results."""
    return describe(key, results.candidates.get(key), results.metrics.get(key))


def arrange(metrics: Iterable[ShownMetric]) -> list[ShownMetric]:
    """The metrics in the order of the tables: by group, then as given, a held-out scorer's after the first scorer's."""
    metrics = list({metric.key: metric for metric in metrics}.values())
    seen: dict[str, int] = {}
    for metric in metrics:
        seen.setdefault(metric.base, len(seen))
    return sorted(metrics, key=lambda m: (GROUPS.index(m.group), seen[m.base], m.scorer))


def decimals(estimates: Iterable[Interval | None], difference: Iterable[float] = ()) -> int:
    """Decimals that suit one metric's row, so that no bound of a difference is shown as a zero that it is not."""
    values = [x for e in estimates if e for x in (e.value, e.low, e.high) if not math.isnan(x)]
    values = values or [x for x in difference if not math.isnan(x)]
    if not values or all(x == int(x) for x in values):
        places = 0
    else:
        largest = max(map(abs, values))
        places = 0 if largest >= 1000 else 1 if largest >= 1 else 3
    return places_for(places, difference)


def number(x: float | None, places: int, *, signed: bool = False) -> str:
    """``x`` for reading: a true minus sign, thousands apart, an en dash where there is none."""
    if x is None or x != x:
        return "–"
    text = f"{abs(x):,.{places}f}"
    negative = x < 0 and float(text.replace(",", "")) != 0
    return (MINUS if negative else "+" if signed else "") + text


# Parts of a signature that change an interval or a yardstick, and not the value itself.
_IDLE = ("bootstrap", "human")
_NAMES = {
    "scorer": "the scorer",
    "mined-by": "the scorer that mined the look-alikes",
    "pools": "the candidates",
    "truth": "the truth",
    "tok": "the tokenizer",
    "tellapart": "the version of tellapart",
}
_SHORT = 60  # characters of a part that is named


def test_conditions(results: Results, key: str) -> tuple[object, ...]:
    """Returns what two values of a metric must share to be comparable: the pictures, and the metric's signature.

    Results without a digest of their pictures are comparable with no others.
    """
    n, ids = _pictures(results)
    return (n, ids or id(results), _parts(results, key))


def differences(a: Results, b: Results, key: str) -> list[str]:
    """Returns what keeps two values of a metric from being compared, in words; empty where they can be.

    As in ``["the pictures (3 against 6)", "the scorer (clip@1 against clip@2)"]``.
    """
    found = []
    (n_a, ids_a), (n_b, ids_b) = _pictures(a), _pictures(b)
    if not (ids_a and ids_b):
        found.append("the pictures (their ids are not on file)")
    elif (n_a, ids_a) != (n_b, ids_b):
        how = f"{n_a:,} against {n_b:,}" if n_a != n_b else f"{n_a:,} each, and not the same ones"
        found.append(f"the pictures ({how})")
    left, right = (dict(_parts(results, key)) for results in (a, b))
    for name in dict.fromkeys([*left, *right]):
        if left.get(name) != right.get(name):
            how = " against ".join(_short(side.get(name)) for side in (left, right))
            found.append(f"{_NAMES.get(name, name or 'the signature')} ({how})")
    return found


def classes(results: Sequence[Results], key: str) -> list[list[int]]:
    """Positions of results whose values of a metric can be ranked against each other, the most numerous class first."""
    found: dict[tuple[object, ...], list[int]] = {}
    for place, one in enumerate(results):
        found.setdefault(test_conditions(one, key), []).append(place)
    return sorted(found.values(), key=len, reverse=True)


def _pictures(results: Results) -> tuple[int, str]:
    return len(results.ids), results.ids_digest or ""


def _parts(results: Results, key: str) -> tuple[tuple[str, str], ...]:
    """The signature's parts that decide the value, by name; what has no name is one part, called as the metric."""
    named: dict[str, str] = {}
    plain: list[str] = []
    for part in filter(None, results.signatures.get(key, "").split("|")):
        name, colon, value = part.partition(":")
        if not colon:
            plain.append(part)
        elif name not in _IDLE:
            named[name] = value
    return (("", "|".join(plain)), *sorted(named.items()))


def _short(value: str | None) -> str:
    if not value:
        return "none on file"
    return value if len(value) <= _SHORT else value[: _SHORT - 1] + "…"


# Systems that are yardsticks: they are shown, but a run is not judged by them unless there is nothing else.
YARDSTICKS = ("human", "chance", "random")
# The first of these that was measured is what the headline is about.
HEADLINE = ("recall@1.lookalike", "recall@1.truematch", "recall@1.random100", "recall@1", "listener_accuracy")
# Where several things got worse, the headline names these first.
COSTS = ("hallucination_rate", "attribute_precision", "repetition_rate", "binding_error_rate", "cider", "bleu4")


@dataclass(frozen=True)
class Change:
    """One metric from before to after; ``paired`` is after minus before."""

    metric: ShownMetric
    before: Interval
    after: Interval
    paired: Difference
    places: int

    @property
    def difference(self) -> float:
        """After minus before."""
        return self.after.value - self.before.value if math.isnan(self.paired.value) else self.paired.value

    @property
    def clear(self) -> bool:
        """Returns `Difference.clear`; nothing is clear without a paired test."""
        return self.paired.clear

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
        if math.isnan(self.paired.low) or math.isnan(self.paired.high):
            return ""
        low, high = (number(x, self.places, signed=True) for x in (self.paired.low, self.paired.high))
        return f"{low} to {high}"

    @property
    def p_text(self) -> str:
        """As in ``p = 0.012`` or ``p < 0.001``; empty without a p-value."""
        corrected = not math.isnan(self.paired.p_holm)
        p = self.paired.p_holm if corrected else self.paired.p
        text = "" if math.isnan(p) else format_p(p)
        name = "p by Holm" if corrected else "p"
        return text and (f"{name} < {text[1:]}" if text.startswith("<") else f"{name} = {text}")

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
class BeforeAfter:
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


def compare(results: Results) -> BeforeAfter | None:
    """The comparison that the page's headline is about, or None where there are no two systems to compare."""
    return next(iter(comparisons(results)), None)


def comparisons(results: Results) -> list[BeforeAfter]:
    """Every two systems that were tested against each other, people's captions aside; the headline's first."""
    first = _base_pair(results)
    if first is None:
        return []
    tested = [(pair.a, pair.b) for pair in results.pairs if not {pair.a, pair.b} & set(YARDSTICKS)]
    others = [pair for pair in dict.fromkeys(tested) if set(pair) != set(first)]
    known = [pair for pair in (first, *others) if set(pair) <= set(results.systems)]
    return [_compare(results, *pair) for pair in known]


def _compare(results: Results, a: str, b: str) -> BeforeAfter:
    shared = (key for key in results.systems[a] if key in results.systems[b])
    found = [_change(results, a, b, m) for m in arrange(metric_of(results, key) for key in shared)]
    return BeforeAfter(a, b, tuple(c for c in found if c is not None))


def _base_pair(results: Results) -> tuple[str, str] | None:
    names = order(list(results.systems))
    if "before" in names and "after" in names:
        return "before", "after"
    for pair in results.pairs:
        if pair.a in names and pair.b in names and not {pair.a, pair.b} & set(YARDSTICKS):
            return pair.a, pair.b
    own = [name for name in names if name not in YARDSTICKS]
    return (own[0], own[1]) if len(own) > 1 else None


def _change(results: Results, a: str, b: str, metric: ShownMetric) -> Change | None:
    before, after = results.systems[a][metric.key], results.systems[b][metric.key]
    if math.isnan(before.value) or math.isnan(after.value):
        return None
    found = _difference(results, a, b, metric.key)
    places = decimals((before, after), (found.value, found.low, found.high))
    return Change(metric, before, after, found, places)


def _difference(results: Results, a: str, b: str, key: str) -> Difference:
    """The paired difference b minus a, turned round where the pair is (b, a); NaN where there is none."""
    for pair in results.pairs:
        found = pair.difference
        if pair.metric == key and (pair.a, pair.b) == (a, b):
            return found
        if pair.metric == key and (pair.a, pair.b) == (b, a):
            return found.turned()
    return Difference()


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
        found = [
            f"95\u00a0% interval {low} to {high}" if not math.isnan(estimate.low) else "",
            metric.setting(estimate),
        ]
        return "; ".join(filter(None, found))
    key = main_metric([c.metric.key for c in comparison.changes])
    if key is None or (main := comparison.get(key)) is None:
        return ""
    interval = f"95\u00a0% interval {main.interval}" if main.interval else "no paired interval"
    return "; ".join(filter(None, [", ".join(filter(None, [main.by, interval, main.p_text])), main.setting]))


def _doubt(comparison: BeforeAfter, main: Change) -> str:
    """A gain that a held-out scorer does not confirm may be reward hacking: the headline says so."""
    others = [
        c for c in comparison.changes if c.metric.scorer and c.metric.key == f"{main.metric.key}@{c.metric.scorer}"
    ]
    if main.verdict == "better" and any(c.verdict != "better" for c in others):
        return "; a second scorer does not confirm it"
    return ""


def _costs(comparison: BeforeAfter, main: Change) -> str:
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


def _lone(results: Results) -> tuple[str, ShownMetric, Interval]:
    """The one system that there is, and its number for the headline."""
    name = next((n for n in order(list(results.systems)) if results.systems[n]), "")
    key = main_metric(list(results.systems[name])) or next(iter(results.systems[name]))
    return name, metric_of(results, key), results.systems[name][key]
