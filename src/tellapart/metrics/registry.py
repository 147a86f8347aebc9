"""The registry of metrics, and the decorator `metric`, which adds a function to it.

``@metric("rouge_l", label="ROUGE-L", ...)`` decorates the function and declares the metric's requirements, label,
direction and aliases, which appear in ``eval --metrics list``, errors, signatures, reports and
``docs/reference/metrics.md``.

Text metrics are in this folder; metrics that use pictures, scorers or a judge are in `tellapart.evaluation.metrics`. To
add a metric of captions and references from outside the package, register its function or a `Metric` in an installed
package under the entry-point group ``tellapart.metrics``, or pass its dotted path on the command line: ``--metrics
my_metrics:shouting``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from tellapart.metrics.metric import CaptionSetMetric, ContextMetric, Metric
from tellapart.metrics.metric_info import GROUPS
from tellapart.utils.registry import Registry

Function = TypeVar("Function", bound=Callable[..., Any])


METRICS: Registry[Metric] = Registry(
    "metric", Metric, group="tellapart.metrics", packages=("tellapart.metrics", "tellapart.evaluation.metrics")
)


def metric(name: str, kind: type[Metric] = Metric, **about: Any) -> Callable[[Function], Function]:
    """Decorator that registers a function as a metric. ``about`` sets fields of ``kind``."""

    def register(function: Function) -> Function:
        METRICS.register(kind(name=name, factory=function, **about))
        return function

    return register


def on_request() -> None:
    """Does nothing. As a metric's ``check``, makes the metric run only if it is requested by name."""


context_metric = partial(metric, kind=ContextMetric)
caption_set_metric = partial(metric, kind=CaptionSetMetric)


def in_order(metrics: Sequence[Metric]) -> dict[str, Metric]:
    """Returns metrics by name. Sorts them by group, then our metrics before those from other packages, then by
    module.
    """
    group = {name: place for place, name in enumerate(GROUPS)}

    def place(metric: Metric) -> tuple[int, bool, str]:
        module = getattr(metric.factory, "func", metric.factory).__module__ or ""
        inside = module.startswith("tellapart.")  # only for these, since the order must not depend on imports
        return group.get(metric.group, len(group)), not inside, module if inside else ""

    return {metric.name: metric for metric in sorted(metrics, key=place)}
