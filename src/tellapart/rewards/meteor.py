"""METEOR and SPICE of each caption against the references of its picture, as rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tellapart.metrics.meteor_score import find_tables, meteor
from tellapart.metrics.spice_tool import find_tool, spice
from tellapart.rewards.base import REWARDS, Reward, RewardEntry, RewardOptions, RunParts
from tellapart.types import Batch, Rollout
from tellapart.utils.registry import LazyModule

if TYPE_CHECKING:
    import numpy as np
    import torch
else:
    torch = LazyModule("torch")

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


class MeteorOptions(RewardOptions):
    """METEOR against the references, 0 to 1; needs the extra meteor."""

    kind: Literal["meteor"]

    def build(self, parts: RunParts) -> Reward:
        return MetricReward(meteor)

    def check(self) -> None:
        find_tables()


class SpiceOptions(RewardOptions):
    """SPICE against the references, 0 to 1; needs its tool and Java 8."""

    kind: Literal["spice"]

    def build(self, parts: RunParts) -> Reward:
        return MetricReward(spice)

    def check(self) -> None:
        find_tool()


_SHOWN: dict[str, tuple[str, Any]] = {"meteor": ("METEOR", MeteorOptions), "spice": ("SPICE", SpiceOptions)}
for _name, (_label, _options) in _SHOWN.items():
    REWARDS.register(
        RewardEntry(
            name=_name,
            factory=_options.build,
            help=f"{_label} against the references.",
            options=_options,
            needs=("references",),
            label=_label,
            direction="higher",
            check=_options.check,
        )
    )
