"""Prepares metrics for readers: explains result keys, and says which group and which direction they have."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tellapart.metrics.intervals import Interval
from tellapart.metrics.metric_info import GROUPS, OTHER, Candidates, MetricInfo
from tellapart.metrics.registry import METRICS
from tellapart.metrics.result_keys import MetricKey, parse_key
from tellapart.metrics.results import Results


@dataclass(frozen=True)
class ShownMetric:
    """A metric as shown in reports.

    direction: +1 if higher is better, -1 if lower is better, 0 if neither is better.
    scorer: the held-out scorer with which the metric was measured, or "" for the first scorer.
    """

    key: str
    name: str
    explain: str
    direction: int
    group: str
    scorer: str = ""
    candidates: Candidates | None = None
    digits: int = 1

    def setting(self, *estimates: Interval | None) -> str:
        """Returns the known settings of a recall metric, e.g. ``n = 500, 10 candidates, chance 10.0``, or "" for other
        metrics.
        """
        if self.candidates is None and not self.key.startswith(("recall@", "mean_rank.", "listener_accuracy")):
            return ""
        counts = sorted({e.n for e in estimates if e is not None and (e.n or math.isnan(e.value))})
        parts = [f"n = {' and '.join(f'{n:,}' for n in counts)}"] if counts else []
        if self.candidates is not None:
            parts += [f"{self.candidates} candidates", f"chance {self.candidates.chance:.1f}"]
        return ", ".join(parts)

    @property
    def base(self) -> str:
        """Returns the key without the suffix that names a held-out scorer."""
        return self.key.removesuffix(f"@{self.scorer}") if self.scorer else self.key


def describe(key: str, candidates: Candidates | None = None, info: MetricInfo | None = None) -> ShownMetric:
    """Returns the metric for a key such as ``recall@1.random100@held-out``.

    info: the metric's description in the results. Default: that of the built-in metric, or else the key as the name.
    candidates: the candidates among which the scorer chooses. Default: those that the key names.
    """
    parsed = parse_key(key)
    candidates = candidates or parsed.candidates
    info = info or _built_in(parsed, candidates)
    direction = {"higher": 1, "lower": -1}.get(info.direction or "", 0)
    group = info.group if info.group in GROUPS else OTHER
    return ShownMetric(key, info.label, info.help, direction, group, parsed.scorer, candidates, info.digits)


def _built_in(parsed: MetricKey, candidates: Candidates | None) -> MetricInfo:
    """Returns a built-in metric's description, for example for a key of a validation log. The random pool contains
    fewer than 100 pictures if the data do.
    """
    metric = METRICS.builtin().get(re.sub(r"\.random\d+$", ".random100", parsed.base))
    if metric is None:
        return MetricInfo(label=parsed.base.replace("_", " "))
    return metric.info(candidates, parsed.scorer)


def metric_of(results: Results, key: str) -> ShownMetric:
    """Returns the metric that a key in these results stands for."""
    return describe(key, results.candidates.get(key), results.metrics.get(key))


def arrange(metrics: Iterable[ShownMetric]) -> list[ShownMetric]:
    """Sorts metrics for tables: by group, then in the given order. A metric's value with a held-out scorer comes right
    after its value with the first scorer.
    """
    metrics = list({metric.key: metric for metric in metrics}.values())
    seen: dict[str, int] = {}
    for metric in metrics:
        seen.setdefault(metric.base, len(seen))
    return sorted(metrics, key=lambda m: (GROUPS.index(m.group), seen[m.base], m.scorer))
