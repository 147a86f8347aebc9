"""Finds the metric that a key in the results refers to, and its description."""

from __future__ import annotations

from tellapart.evaluation.metrics.recall import mean_rank, recall
from tellapart.evaluation.selected_caption import with_choices
from tellapart.metrics.metric import Metric
from tellapart.metrics.metric_info import Candidates, MetricInfo
from tellapart.metrics.registry import METRICS
from tellapart.metrics.result_keys import KEY_SUFFIXES, parse_key


def describe(key: str, candidates: Candidates | None = None) -> MetricInfo:
    """Returns the label and help text for a result key such as ``recall@1.random100@second``.

    Without ``candidates``, uses the size in the key. The label of an unknown key is the key itself.
    """
    parsed = parse_key(key)
    base = parsed.base
    suffix = next((suffix for suffix in KEY_SUFFIXES if base.endswith(suffix)), "")
    metric = metric_of_key(base.removesuffix(suffix))
    if metric is None:
        return MetricInfo(base.replace("_", " "), "unknown metric")
    choice = next((choice for choice in with_choices(metric) if suffix and choice.name.endswith(suffix)), metric)
    return choice.info(candidates or parsed.candidates, parsed.scorer)


def metric_of_key(base: str) -> Metric | None:
    """Returns the metric that a result key without suffixes refers to, or None for an unknown key."""
    if base in (builtin := METRICS.builtin()):
        return builtin[base]
    if base.startswith("mean_rank."):
        return mean_rank(base.partition(".")[2])
    if (parsed := parse_key(base)).k is not None:
        return recall(parsed.k, parsed.pools)
    return METRICS.get(base)
