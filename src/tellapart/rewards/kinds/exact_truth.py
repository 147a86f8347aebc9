"""``kind = "exact_truth"``: minus the false claims, by the scene itself; an upper bound, only on `scenes`."""

from __future__ import annotations

from typing import Literal

from tellapart.rewards.base import REWARDS, Reward, RewardEntry, RewardOptions, RunParts


class ExactTruth(RewardOptions):
    """Minus the number of false claims of each caption, or −1 on each ``token`` of a false one.

    It reads the truth, so it is an upper bound for other rewards, and no method.
    """

    kind: Literal["exact_truth"]
    per: Literal["caption", "token"] = "caption"

    @property
    def per_token(self) -> bool:
        return self.per == "token"


def build(options: ExactTruth, parts: RunParts) -> Reward:
    from tellapart.rewards.exact_truth import ExactTruth as ExactTruthReward

    return ExactTruthReward(parts.captioner.tokenizer, per=options.per)


REWARDS.register(
    RewardEntry(
        name="exact_truth",
        factory=build,
        help="Minus the false claims, by the scene itself: an upper bound, on scenes only.",
        options=ExactTruth,
        needs=("truth",),
        label="exact truth",
        direction="higher",
    )
)
