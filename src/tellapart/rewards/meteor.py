"""METEOR and SPICE of each caption against the references of its picture, as rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import create_model

from tellapart.metrics.meteor_score import find_tables, meteor
from tellapart.metrics.spice_tool import find_tool, spice
from tellapart.rewards.base import REWARDS, Reward, RewardEntry, RewardOptions, RunParts
from tellapart.types import Batch, Rollout

CaptionScores = Callable[[Sequence[str], Sequence[Sequence[str]]], "tuple[float, np.ndarray]"]


class MetricReward:
    """A metric of each caption alone against its picture's references (``batch.items``), 0 to 1.

    ``measure(captions, references)`` gives the metric of all and of each; NaN abstains.
    """

    def __init__(self, measure: CaptionScores) -> None:
        self.measure = measure

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        references = [list(item.references) for item in batch.items for _ in range(rollout.samples)]
        _, score_R = self.measure(rollout.texts, references)
        return torch.from_numpy(score_R).float().view(-1, rollout.samples)


class MetricOptions(RewardOptions):
    """A metric against the references, 0 to 1, by the name of its reward."""

    def build(self, parts: RunParts) -> Reward:
        return MetricReward(_METRICS[self.kind].measure)

    def check(self) -> None:
        _METRICS[self.kind].find()


class CaptionMetric(NamedTuple):
    """A metric as a reward: its label, what it needs, how it is computed, and what finds its tables or its tool."""

    label: str
    needs: str
    measure: CaptionScores
    find: Callable[[], object]


_METRICS = {
    "meteor": CaptionMetric("METEOR", "the extra meteor", meteor, find_tables),
    "spice": CaptionMetric("SPICE", "its tool and Java 8", spice, find_tool),
}
for _name, _metric in _METRICS.items():
    _kind: dict[str, Any] = {"kind": (Literal[_name], ...)}
    REWARDS.register(
        RewardEntry(
            name=_name,
            factory=MetricOptions.build,
            help=f"{_metric.label} against the references.",
            options=create_model(
                f"{_name.title()}Options",
                __base__=MetricOptions,
                __doc__=f"{_metric.label} against the references, 0 to 1; needs {_metric.needs}.",
                **_kind,
            ),
            needs=("references",),
            label=_metric.label,
            direction="higher",
            check=MetricOptions.check,
        )
    )
