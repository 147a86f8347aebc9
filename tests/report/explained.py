"""Results with the registry's descriptions of metrics, as evaluations store them."""

from typing import Any

from tellapart.metrics.metric_info import MetricInfo
from tellapart.metrics.registry import METRICS
from tellapart.metrics.result_keys import parse_key
from tellapart.metrics.results import Results


def info(key: str) -> MetricInfo:
    """What the registry says of a key of results."""
    parsed = parse_key(key)
    metric = METRICS.builtin().get(parsed.base)
    return metric.info(parsed.candidates, parsed.scorer) if metric else MetricInfo(key.replace("_", " "))


def made_results(**fields: Any) -> Results:
    """Results with the registry's words for their metrics."""
    results = Results.from_json(fields)
    results.metrics |= {key: info(key) for system in results.systems.values() for key in system}
    return results
