"""The five main metrics of a result, which ``tellapart eval`` prints."""

from __future__ import annotations

from collections.abc import Iterable

from tellapart.metrics.registry import METRICS
from tellapart.metrics.result_keys import parse_key

# Unless the user requests metrics, `eval` prints the first five of these that were measured.
_MAIN = ("recall@1.lookalike", "recall@1.random100", "cider", "clipscore", "bleu4", "hallucination_rate", "length",
         "vocabulary", "repetition_rate", "rouge_l")  # fmt: skip
# Inputs that users provide only if they are interested in the metric.
_ASKED = {"language_model", "text_encoder", "queries", "several", "clips"}
MAIN_COUNT = 5


def main_metrics(keys: Iterable[str]) -> list[str]:
    """Selects five main metrics from the measured metrics. Returns their keys, including the keys for every additional
    scorer.

    Metrics that need an option such as ``--bags`` or an installed package come first, then `_MAIN`, then all other
    metrics.
    """
    builtin = METRICS.builtin()

    def place(base: str) -> int:
        metric = builtin.get(base)
        asked = metric is None or bool(_ASKED & set(metric.needs))
        return -1 if asked else _MAIN.index(base) if base in _MAIN else len(_MAIN)

    keys = list(keys)
    main = sorted(dict.fromkeys(parse_key(key).base for key in keys), key=place)[:MAIN_COUNT]
    return [key for key in keys if parse_key(key).base in main]
