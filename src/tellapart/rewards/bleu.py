"""BLEU of each caption against the references of its picture, as a reward."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from tellapart.metrics.bleu_score import bleu
from tellapart.rewards.base import REWARDS, Reward, RewardEntry, RewardOptions, RunParts
from tellapart.types import Batch, Rollout


class BleuReward:
    """BLEU-n of each caption alone against its picture's references (``batch.items``), 0 to 1, as the COCO tools."""

    class Config(RewardOptions):
        """Sentence BLEU-n against the references, 0 to 1."""

        kind: Literal["bleu"]
        n: int = Field(4, ge=1, le=4)

        def build(self, parts: RunParts) -> Reward:
            return BleuReward(self.n)

    def __init__(self, n: int = 4) -> None:
        self.n = n

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:

        references = [list(item.references) for item in batch.items for _ in range(rollout.samples)]
        _, score_R = bleu(rollout.texts, references, self.n)
        return torch.from_numpy(score_R).float().view(-1, rollout.samples)


REWARDS.register(
    RewardEntry(
        name="bleu",
        factory=BleuReward.Config.build,
        help="Sentence BLEU against the references.",
        options=BleuReward.Config,
        needs=("references",),
        label="BLEU",
        direction="higher",
    )
)
