"""Metrics of an evaluation. Text metrics are registered by their functions in `tellapart.metrics`, imported here.

To add a text metric, decorate its function there with ``@metric`` and import its module below. To add a metric that
needs pictures, a scorer or a judge, register a `ContextMetric` in a module of this folder.
"""

from tellapart.metrics import bleu_score, cider, diversity, lexical, meteor_score, rouge_score, spice_tool

__all__ = ["bleu_score", "cider", "diversity", "lexical", "meteor_score", "rouge_score", "spice_tool"]
