"""Reports as the commands build them: with the registry's words for metrics."""

from functools import partial
from typing import Any

from tellapart import report
from tellapart.evaluation.metric_of_key import describe
from tellapart.metrics.metric_info import MetricInfo
from tellapart.metrics.results import Results
from tellapart.report import folder, shown_metric

build_report = partial(report.build_report, describe=describe)
read_run = partial(folder.read_run, describe=describe)


def info(key: str) -> MetricInfo:
    """What the registry says of a key of results."""
    return describe(key)


def made_results(**fields: Any) -> Results:
    """Results with the registry's words for their metrics."""
    results = Results.from_json(fields)
    results.metrics |= {key: info(key) for system in results.systems.values() for key in system}
    return results


def described(key: str) -> shown_metric.ShownMetric:
    """The metric of a key whose results say nothing of it."""
    return shown_metric.describe(key, info=info(key))
