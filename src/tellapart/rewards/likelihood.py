"""The likelihood of a caption under the initial model."""

from __future__ import annotations

from typing import Literal

import torch

from tellapart.rewards.base import Reward, RewardOptions, reward
from tellapart.rewards.run_parts import RunParts
from tellapart.rewards.speaker import Speaker
from tellapart.types import Batch, Rollout


class Likelihood:
    """Computes reward_BS, the mean log-probability of a caption's tokens under the initial model, in nats, at most 0.

    An empty caption gets the log-probability of its end token.
    """

    @reward(
        "likelihood", help="Mean log-probability of the caption's tokens under the initial model.", needs=("start",)
    )
    class Config(RewardOptions):
        """Mean log-probability of the caption's tokens under the initial model, in nats, at most 0.

        A scorer's cosine does not penalize a false word, but the initial model assigns it a low probability. Combined
        with self-retrieval, this reward is the speaker in the Rational Speech Acts framework (Frank and Goodman 2012),
        as in ``self_distillation``.
        """

        kind: Literal["likelihood"]

        def build(self, parts: RunParts) -> Reward:
            return Likelihood(Speaker(parts.start(), pixels=parts.vision_learns))

    def __init__(self, speaker: Speaker) -> None:
        self.speaker = speaker

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        log_p_RT = self.speaker.own_log_probs(rollout, batch)
        return (log_p_RT.sum(1) / rollout.valid_RT.sum(1).clamp(min=1)).view(-1, rollout.samples)
