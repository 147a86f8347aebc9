"""Metrics in words: what a key of ``results.json`` means, and which direction is better."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tellapart.metrics.results import GROUPS, OTHER
from tellapart.metrics.statistics import places_for
from tellapart.report.folder import Candidates, Estimate, MetricInfo, Results

MINUS = "\u2212"


@dataclass(frozen=True)
class Metric:
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
        """Whether it is a retrieval metric, which is shown with the number of candidates and chance."""
        return self.candidates is not None or bool(_RETRIEVAL.match(self.key))

    def setting(self, *estimates: Estimate | None) -> str:
        """The setting of a recall, as far as the results have it: ``n = 500, 10 candidates, chance 10.0``."""
        if not self.retrieval:
            return ""
        counts = sorted({e.n for e in estimates if e is not None and e.n is not None})
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


def describe(key: str, candidates: Candidates | None = None, info: MetricInfo | None = None) -> Metric:
    """The metric behind a key such as ``recall@1.random100@held-out``.

    ``info``: what the results say of it; a key without is its own name. ``candidates``: by default the number that the
    key names.
    """
    if candidates is None and (named := _NAMED_SIZE.match(key)):
        k, size = int(named[1]), int(named[2])
        candidates = Candidates(fewest=size, most=size, chance=100 * min(1.0, k / size))
    found = _KEY.fullmatch(key)
    base, scorer = (found["base"], found["scorer"] or "") if found else (key, "")
    info = info or MetricInfo(label=base.replace("_", " "))
    direction = {"higher": 1, "lower": -1}.get(info.direction or "", 0)
    group = info.group if info.group in GROUPS else OTHER
    return Metric(key, info.label, info.help, direction, group, scorer, candidates)


def metric_of(results: Results, key: str) -> Metric:
    """The metric of a key of these results."""
    return describe(key, results.candidates.get(key), results.metrics.get(key))


def arrange(metrics: Iterable[Metric]) -> list[Metric]:
    """The metrics in the order of the tables: by group, then as given, a held-out scorer's after the first scorer's."""
    metrics = list({metric.key: metric for metric in metrics}.values())
    seen: dict[str, int] = {}
    for metric in metrics:
        seen.setdefault(metric.base, len(seen))
    return sorted(metrics, key=lambda m: (GROUPS.index(m.group), seen[m.base], m.scorer))


def decimals(estimates: Iterable[Estimate | None], difference: Iterable[float | None] = ()) -> int:
    """Decimals that suit one metric's row, so that no bound of a difference is shown as a zero that it is not."""
    values = [x for e in estimates if e for x in (e.value, e.low, e.high) if x is not None]
    values = values or [x for x in difference if x is not None]
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
