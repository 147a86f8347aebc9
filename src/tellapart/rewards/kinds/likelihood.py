"""``kind = "likelihood"``: how likely the start model finds the caption of its picture."""

from __future__ import annotations

from typing import Literal

from tellapart.rewards.base import REWARDS, Reward, RewardEntry, RewardOptions, RunParts


class Likelihood(RewardOptions):
    """Log-probability of the caption under the start model, for each of its tokens, in nats, at most 0.

    A scorer's cosine costs a false word nothing. The start model finds it unlikely: beside self-retrieval it is the
    speaker of rational speech acts (Frank and Goodman 2012), as in ``self_distillation``.
    """

    kind: Literal["likelihood"]


def build(options: Likelihood, parts: RunParts) -> Reward:
    from tellapart.rewards.speaker import Likelihood as LikelihoodReward
    from tellapart.rewards.speaker import Speaker

    return LikelihoodReward(Speaker(parts.start(), pixels=parts.vision_learns))


REWARDS.register(
    RewardEntry(
        name="likelihood",
        factory=build,
        help="How likely the start model finds the caption, for each of its tokens.",
        options=Likelihood,
        needs=("start",),
        label="likelihood",
        direction="higher",
    )
)
