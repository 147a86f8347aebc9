"""Writes a page's headline, which says what got better and what got worse, and the statistics behind it."""

from __future__ import annotations

import math

from tellapart.metrics.intervals import Interval
from tellapart.metrics.results import Results
from tellapart.report.number_text import format_number, listed
from tellapart.report.shown_metric import ShownMetric, metric_of
from tellapart.report.verdict import YARDSTICKS, BeforeAfter, Change, compare, comparisons, main_metric, order

# If several metrics got worse, the headline lists these first.
COSTS = ("hallucination_rate", "attribute_precision", "repetition_rate", "binding_error_rate", "cider", "bleu4")


def headline(results: Results | None) -> str:
    """Returns one sentence on what got better and what got worse. `statistics` returns the numbers behind it."""
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
    """Formats the systems' values, starting with the highest, e.g. ``68.0 (“b”), 41.2 (“a”)``."""
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
    """Returns the statistics for the number in the headline, or "" if there are none."""
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
    """Returns a caveat if a held-out scorer does not confirm the gain. In this case, the gain may be reward hacking."""
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
    which = listed(names)
    return f"{which} got worse" if comparison.of_training else f"“{comparison.after}” is worse in {which}"


def _lone(results: Results) -> tuple[str, ShownMetric, Interval]:
    """Returns the only system, with its metric and its value for the headline."""
    name = next((n for n in order(list(results.systems)) if results.systems[n]), "")
    key = main_metric(list(results.systems[name])) or next(iter(results.systems[name]))
    return name, metric_of(results, key), results.systems[name][key]
