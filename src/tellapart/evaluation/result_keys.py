"""Keys of results: finds the metric that a key refers to, and the five main ones."""

from __future__ import annotations

from collections.abc import Iterable

from tellapart.evaluation.metrics.recall import mean_rank, recall
from tellapart.evaluation.selected_caption import with_choices
from tellapart.metrics.keys import parse_key
from tellapart.metrics.registry import KEY_SUFFIXES, METRICS, Metric
from tellapart.metrics.results import Candidates, MetricInfo


def describe(key: str, candidates: Candidates | None = None) -> MetricInfo:
    """Returns the label and help text for a result key such as ``recall@1.random100@second``.

    Without ``candidates``, uses the size in the key. An unknown key is its own label.
    """
    parsed = parse_key(key)
    base = parsed.base
    suffix = next((suffix for suffix in KEY_SUFFIXES if base.endswith(suffix)), "")
    metric = metric_of_key(base.removesuffix(suffix))
    if metric is None:
        return MetricInfo(base.replace("_", " "), "unknown metric")
    choice = next((choice for choice in with_choices(metric) if suffix and choice.name.endswith(suffix)), metric)
    return choice.info(candidates or parsed.candidates, parsed.scorer)


# `eval` prints the first five measured ones of these, unless metrics are named.
_MAIN = ("recall@1.lookalike", "recall@1.random100", "cider", "clipscore", "bleu4", "hallucination_rate", "length",
         "vocabulary", "repetition_rate", "rouge_l")  # fmt: skip
_ASKED = {
    "language_model",
    "text_encoder",
    "queries",
    "several",
    "clips",
}  # inputs that users provide only if they are interested in the metric
MAIN_COUNT = 5


def main_metrics(keys: Iterable[str]) -> list[str]:
    """Returns the keys of the five main metrics among the measured ones, including the keys for every scorer that
    measured them.

    Metrics that need an option such as ``--bags`` or an installed package come first, then `_MAIN`, then others.
    """
    builtin = METRICS.builtin()

    def place(base: str) -> int:
        metric = builtin.get(base)
        asked = metric is None or bool(_ASKED & set(metric.needs))
        return -1 if asked else _MAIN.index(base) if base in _MAIN else len(_MAIN)

    keys = list(keys)
    main = sorted(dict.fromkeys(map(base_of, keys)), key=place)[:MAIN_COUNT]
    return [key for key in keys if base_of(key) in main]


def base_of(key: str) -> str:
    """Returns a result key without the name of an additional scorer."""
    return parse_key(key).base


def metric_of_key(base: str) -> Metric | None:
    """Returns the metric of a result key without suffixes, or None if unknown."""
    if base in (builtin := METRICS.builtin()):
        return builtin[base]
    if base.startswith("mean_rank."):
        return mean_rank(base.partition(".")[2])
    if (parsed := parse_key(base)).k is not None:
        return recall(parsed.k, parsed.pools)
    return METRICS.get(base)
