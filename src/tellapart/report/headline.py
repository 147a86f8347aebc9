"""Writes a page's headline, which says what got better and what got worse, and the statistics behind it."""

from __future__ import annotations

import math

from tellapart.metrics.results import Results
from tellapart.report.number_text import format_number, listed
from tellapart.report.shown_metric import metric_of
from tellapart.report.system_comparison import YARDSTICKS, BeforeAfter, Change, compare, comparisons, main_metric, order

# If several metrics got worse, the headline lists these first.
COSTS = ("hallucination_rate", "attribute_precision", "repetition_rate", "binding_error_rate", "cider", "bleu4")


def headline(results: Results) -> tuple[str, str]:
    """Returns one sentence on what got better and what got worse, and the statistics for the number in it, if any."""
    if not any(results.systems.values()):
        return "This run has not been evaluated, so there are no results to compare.", ""
    comparison = compare(results)
    if comparison is None or not comparison.changes:
        return _alone(results)
    main = comparison.get(main_metric([c.metric.key for c in comparison.changes]))
    if main is None:
        return _sentence("; ".join(map(_tally, comparisons(results)))), ""
    name, key = main.metric.name, main.metric.key
    if comparison.of_training:
        verb = "rose" if main.difference > 0 else "fell"
        what = f"{name} {f'{verb} from' if main.paired.clear else 'did not clearly change,'} {main.values}"
    else:
        values = {
            name: found[key].value for name, found in results.systems.items() if name not in YARDSTICKS and key in found
        }
        ranked = sorted(values, key=lambda name: -values[name])
        what = ", ".join(f"{format_number(values[name], main.metric.digits)} (“{name}”)" for name in ranked)
        what = f"{name}: {what}" + ("" if main.paired.clear else ", no clear difference")
    interval = f"95% interval {main.interval}" if main.interval else "no paired interval"
    numbers = ", ".join(filter(None, [main.by, interval, main.p_text]))
    return (
        _sentence(f"{what}{_doubt(comparison, main)}; {_costs(comparison, main)}"),
        "; ".join(filter(None, [numbers, main.metric.setting(main.before, main.after)])),
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _alone(results: Results) -> tuple[str, str]:
    """Returns the sentence and the statistics for results without a second system."""
    name = next(name for name in order(list(results.systems)) if results.systems[name])
    key = main_metric(list(results.systems[name])) or next(iter(results.systems[name]))
    metric, found = metric_of(results, key), results.systems[name][key]
    value, low, high = (format_number(x, metric.digits) for x in (found.value, found.low, found.high))
    interval = "" if math.isnan(found.low) else f"95% interval {low} to {high}"
    return (
        _sentence(f"{metric.name} is {value} for “{name}”; there is no other system to compare with"),
        "; ".join(filter(None, [interval, metric.setting(found)])),
    )


def _tally(comparison: BeforeAfter) -> str:
    better, worse, total = *(len(comparison.of(v)) for v in ("better", "worse")), len(comparison.changes)
    measures = f"{total} measure{'s' if total > 1 else ''}"
    if comparison.of_training:
        return f"of {measures} {better} got better and {worse} got worse"
    return f"of {measures} “{comparison.after}” is better than “{comparison.before}” in {better} and worse in {worse}"


def _doubt(comparison: BeforeAfter, main: Change) -> str:
    """Returns a caveat if a held-out scorer does not confirm the gain. In this case, the gain may be reward hacking."""
    others = [c.verdict for c in comparison.changes if c.metric.scorer and c.metric.base == main.metric.key]
    doubtful = main.verdict == "better" and set(others) - {"better"}
    return "; a second scorer does not confirm this" if doubtful else ""


def _costs(comparison: BeforeAfter, main: Change) -> str:
    worse = [c for c in comparison.of("worse") if c is not main]
    if not worse:
        if len(comparison.changes) == 1:
            return "no other metric was measured"
        if comparison.of_training:
            return "no other metric clearly got worse"
        return f"“{comparison.after}” is not clearly worse in any other metric"
    worse.sort(key=lambda c: COSTS.index(c.metric.key) if c.metric.key in COSTS else len(COSTS))
    names = [c.metric.name for c in worse[:2]]
    if (rest := len(worse) - 2) > 0:
        names.append(f"{rest} more measure{'s' if rest > 1 else ''}")
    which = listed(names)
    return f"{which} got worse" if comparison.of_training else f"“{comparison.after}” is worse in {which}"
