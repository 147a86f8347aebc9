"""``kind = "bleu"``: BLEU-n of each caption against the references of its picture."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tellapart.rewards.base import REWARDS, Reward, RewardEntry, RewardOptions, RunParts


class Bleu(RewardOptions):
    """Sentence BLEU-n against the references, 0 to 1."""

    kind: Literal["bleu"]
    n: int = Field(4, ge=1, le=4)


def build(options: Bleu, parts: RunParts) -> Reward:
    from tellapart.rewards.overlap import Bleu as BleuReward

    return BleuReward(options.n)


REWARDS.register(
    RewardEntry(
        name="bleu",
        factory=build,
        help="Sentence BLEU against the references.",
        options=Bleu,
        needs=("references",),
        label="BLEU",
        direction="higher",
    )
)
