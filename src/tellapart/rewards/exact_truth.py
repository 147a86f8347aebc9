"""The ground truth of `scenes` as a reward: an upper bound for rewards that may not use the ground truth."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch

from tellapart.language.token_spans import token_spans
from tellapart.rewards.base import Reward, RewardOptions, reward
from tellapart.rewards.run_parts import RunParts
from tellapart.scenes.marked_captions import mark_caption
from tellapart.types import Batch, Rollout


class ExactTruth:
    """Penalizes false claims according to the scene's ground truth. Works only on `scenes`, as an upper bound.

    ``per``: ``caption`` returns reward_BS, minus the number of false claims; ``token`` returns reward_BST, −1 for the
    tokens of words that make a false claim and 0 for all other tokens.
    """

    @reward(
        "exact truth",
        help="Penalizes false claims according to the scene's ground truth: an upper bound, scenes only.",
        needs=("truth",),
    )
    class Config(RewardOptions):
        """Minus the number of false claims in each caption, or −1 for each ``token`` of a false claim.

        This reward uses the ground truth, so it is an upper bound for other rewards rather than a method.
        """

        kind: Literal["exact_truth"]
        per: Literal["caption", "token"] = "caption"

        @property
        def per_token(self) -> bool:
            return self.per == "token"

        def build(self, parts: RunParts) -> Reward:
            return ExactTruth(parts.captioner.tokenizer, per=self.per)

    def __init__(self, tokenizer: Any, *, per: Literal["caption", "token"] = "caption") -> None:
        self.tokenizer, self.per = tokenizer, per

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:

        scenes = [item.truth for item in batch.items for _ in range(rollout.samples)]
        marked = [mark_caption(text, scene) for text, scene in zip(rollout.texts, scenes, strict=True)]
        if self.per == "caption":
            false_R = torch.tensor([float(one.claims - one.correct) for one in marked])
            return -false_R.view(-1, rollout.samples)
        reward_RT = torch.full(rollout.tokens_RT.shape, math.nan)
        for r, spans in enumerate(token_spans(rollout.rows(), rollout.texts, self.tokenizer)):
            for t, (start, end) in enumerate(spans):
                reward_RT[r, t] = -float(any(start < stop and first < end for first, stop, _ in marked[r].false))
        return reward_RT.view(-1, rollout.samples, reward_RT.shape[1])
