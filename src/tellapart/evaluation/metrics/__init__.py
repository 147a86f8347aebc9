"""Metrics of an evaluation. Those of texts alone stand on their functions in `tellapart.metrics`, imported here.

To add a metric of texts, put ``@metric`` on its function there and its module below. To add one that reads pictures, a
scorer or a judge, register a `ContextMetric` in a module of this folder.
"""

from tellapart.metrics import bleu_score, cider, diversity, lexical, meteor_score, rouge_score, spice_tool

__all__ = ["bleu_score", "cider", "diversity", "lexical", "meteor_score", "rouge_score", "spice_tool"]
