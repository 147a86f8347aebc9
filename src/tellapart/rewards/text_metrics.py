"""BLEU, METEOR and SPICE against the references of each picture, as rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from tellapart.metrics.bleu_score import bleu
from tellapart.metrics.meteor_score import find_tables, meteor
from tellapart.metrics.spice_score import find_tool, spice
from tellapart.rewards.base import Reward, RewardOptions, reward
from tellapart.rewards.run_parts import RunParts
from tellapart.types import Batch, Rollout


class MetricReward:
    """Scores each caption separately against its picture's references (``batch.items``), in [0, 1].

    ``measure(captions, references)`` returns the corpus score and one score per caption. NaN means that the metric
    abstains.
    """

    def __init__(self, measure: Callable[[Sequence[str], Sequence[Sequence[str]]], tuple[float, np.ndarray]]) -> None:
        self.measure = measure

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        references = [list(item.references) for item in batch.items for _ in range(rollout.samples)]
        _, score_R = self.measure(rollout.texts, references)
        return torch.from_numpy(score_R).float().view(-1, rollout.samples)


@reward("BLEU", help="BLEU of the caption against the references.", needs=("references",))
class BleuOptions(RewardOptions):
    """Sentence BLEU-n against the references, in [0, 1], as computed by the COCO tools."""

    kind: Literal["bleu"]
    n: int = Field(4, ge=1, le=4)

    def build(self, parts: RunParts) -> Reward:
        return MetricReward(partial(bleu, n=self.n))


@reward("METEOR", help="METEOR of the caption against the references.", needs=("references",))
class MeteorOptions(RewardOptions):
    """METEOR against the references, in [0, 1]. Requires the extra ``meteor``."""

    kind: Literal["meteor"]

    def check(self) -> None:
        find_tables()

    def build(self, parts: RunParts) -> Reward:
        return MetricReward(meteor)


@reward("SPICE", help="SPICE of the caption against the references.", needs=("references",))
class SpiceOptions(RewardOptions):
    """SPICE against the references, in [0, 1]. Requires the SPICE tool and Java 8."""

    kind: Literal["spice"]

    def check(self) -> None:
        find_tool()

    def build(self, parts: RunParts) -> Reward:
        return MetricReward(spice)
