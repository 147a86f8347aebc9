"""Text metrics with torchmetrics' interface (``update``, ``compute`` and ``reset``). Does not require torchmetrics.

Create ``metric = CaptionMetrics("bleu4", "cider")``, call ``metric.update(captions, references)`` for each batch, then
call ``metric.compute()``. Captions are stored until ``reset`` is called, because corpus BLEU, METEOR and CIDEr are not
means over batches.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tellapart.errors import UsageError
from tellapart.metrics.metric import Metric
from tellapart.metrics.registry import METRICS
from tellapart.models import collectives

Captions = Sequence[str] | str
References = Sequence[Sequence[str] | str]


class CaptionMetrics:
    """Computes metrics from captions and references. ``tellapart eval --metrics list`` lists the metrics' names.

    Values have the same ranges as in `tellapart.metrics`: 0 to 1 for BLEU, METEOR and ROUGE-L, 0 to 10 for CIDEr. With
    torch.distributed, all ranks must call ``compute``, which returns scores over all ranks' captions. Raises
    `UsageError` if a metric needs more than captions and references, and `MissingExtra` if a metric's tables are not
    installed.
    """

    def __init__(self, *names: str) -> None:
        if not names:
            raise UsageError("CaptionMetrics() requires metrics; use, for example, CaptionMetrics('bleu4', 'cider')")
        self.metrics = {name: _of_texts(name) for name in names}
        self.reset()

    def reset(self) -> None:
        """Removes all captions added so far."""
        self._rows: list[tuple[str, list[str]]] = []

    def update(self, preds: Captions, target: References) -> None:
        """Adds captions, and each caption's references (a list of strings or a single string)."""
        self._rows += _rows(preds, target)

    def compute(self) -> dict[str, float]:
        """Returns each metric's corpus score, by name, over all captions added since the last ``reset``."""
        everyone = collectives.gather_texts([json.dumps(row) for row in self._rows])
        return self._numbers([json.loads(text) for text in everyone])

    def __call__(self, preds: Captions, target: References) -> dict[str, float]:
        """Adds captions, and returns the scores over only these captions."""
        self.update(preds, target)
        return self._numbers(_rows(preds, target))

    def _numbers(self, rows: Sequence[Sequence[str | list[str]]]) -> dict[str, float]:
        if not rows:
            raise UsageError("no captions to score; call update(captions, references) first")
        captions, references = ([row[side] for row in rows] for side in (0, 1))
        numbers = {}
        for name, metric in self.metrics.items():
            texts = (captions, references) if "references" in metric.needs else (captions,)
            numbers[name] = float(metric.factory(*texts)[0])
        return numbers


def _rows(preds: Captions, target: References) -> list[tuple[str, list[str]]]:
    captions = [preds] if isinstance(preds, str) else list(preds)
    if isinstance(target, str) or len(captions) != len(target):
        count = "one text" if isinstance(target, str) else f"{len(target)} entries"
        raise UsageError(f"Expected one list of references per caption; got {len(captions)} captions and {count}")
    return [
        (text, [texts] if isinstance(texts, str) else list(texts)) for text, texts in zip(captions, target, strict=True)
    ]


def _of_texts(name: str) -> Metric:
    metric = METRICS.find(name)
    if type(metric) is not Metric:
        raise UsageError(f"metric '{name}' requires more than captions and references; use tellapart eval")
    if metric.check is not None:
        metric.check()
    return metric
