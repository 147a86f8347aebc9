"""Caption metrics for Hugging Face's evaluate: the metrics of the COCO tools, without Java."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import datasets
import evaluate

from tellapart.compat.torchmetrics import CaptionMetrics

DEFAULT = ("bleu4", "rouge_l", "cider")
_TEXT = datasets.Value("string")
_INPUTS = """
    predictions: one caption per picture.
    references: for each picture, a list of references or a single reference.
    metrics: names of metrics that need only captions and references; see `tellapart eval --metrics list`.
"""


class CaptionMetricsOfEvaluate(evaluate.Metric):  # type: ignore[misc]
    """Computes caption metrics (BLEU, METEOR, ROUGE-L, CIDEr, …) over all batches that were added. Returns one number
    per metric.
    """

    def _info(self) -> Any:
        references = (datasets.Sequence(_TEXT), _TEXT)
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation="",
            inputs_description=_INPUTS,
            features=[datasets.Features({"predictions": _TEXT, "references": own}) for own in references],
            license="Apache-2.0",
        )

    def _compute(
        self,
        *,
        predictions: Sequence[str],
        references: Sequence[Sequence[str] | str],
        metrics: Sequence[str] = DEFAULT,
    ) -> dict[str, float]:
        metric = CaptionMetrics(*([metrics] if isinstance(metrics, str) else metrics))
        metric.update(predictions, references)
        return metric.compute()
