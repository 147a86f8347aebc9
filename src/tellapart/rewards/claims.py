"""Claim reward: counts the claims in a caption and how many are wrong (after ClaimDiff-RL, arXiv 2605.20278).

For a caption with D claims, a of which are wrong, the reward is a product of three factors: the fraction of correct
claims, a penalty for each wrong claim, and a bonus for detail. Either of two verifiers decides which claims are wrong:
the ground truth of `scenes`, which gives an upper bound, or the consensus of the initial model's own samples, which
needs no ground truth.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field, model_validator

from tellapart.errors import need_extra
from tellapart.language.claim_tuples import claims_of
from tellapart.language.distinct_claims import confidences
from tellapart.models.decoding import Decoding
from tellapart.rewards.base import Reward, RewardOptions, reward
from tellapart.rewards.run_parts import RunParts
from tellapart.rewards.speaker import Speaker
from tellapart.rewards.start_samples import StartSamples, check_sampling
from tellapart.scenes.claims import count_claims
from tellapart.types import Batch, Rollout
from tellapart.utils.blocks import blocks_of

SAMPLES = Decoding(kind="sample", samples=16, temperature=0.6)
LEAST_SHARE = 0.05  # one of 16 samples is enough, because synonyms split the votes (docs/research/objectives.md)
LEAST_DETAIL = 0.7  # lower bound of the third factor; for a single claim it is slightly higher


def claim_reward(
    wrong: int, claims: int, *, epsilon: float = 0.05, alpha: float = 2.0, kappa: float = 4.0, most_claims: int = 10
) -> float:
    """Computes the reward, 0 to 1, for a caption with D = ``claims`` claims, a = ``wrong`` of which are wrong.

        [ε + (1 − ε)(1 − a/D)^α] · exp(−a/κ) · (0.7 + 0.3 · min(1, ln(1 + D) / ln(1 + D_max)))

    A caption without claims gets 0, because it says nothing that could be correct.
    """
    if not claims:
        return 0.0
    right: float = epsilon + (1 - epsilon) * (1 - wrong / claims) ** alpha
    detail = min(1.0, math.log1p(claims) / math.log1p(most_claims))
    return right * math.exp(-wrong / kappa) * (LEAST_DETAIL + (1 - LEAST_DETAIL) * detail)


class ClaimReward:
    """Computes `claim_reward` for each caption, B×S, in [0, 1].

    samples: samples captions for each picture from the initial model in every step. None: the scene's ground truth
        decides which claims are wrong.
    cfg.least_share: a claim is wrong if less than this fraction of the consensus samples make the claim.
    """

    @reward("claims", help="Rewards many claims per caption and penalizes wrong ones (ClaimDiff-RL).")
    class Config(RewardOptions):
        """Reward in [0, 1] that depends on the number of claims in a caption and how many are wrong (ClaimDiff-RL).

        ``verifier``: the ``consensus`` of the initial model's own samples, or the ground ``truth`` of scenes (upper
        bound).
        """

        kind: Literal["claims"]
        verifier: Literal["consensus", "truth"] = "consensus"
        epsilon: float = Field(0.05, ge=0, le=1, description="value of the first factor if all claims are wrong")
        alpha: float = Field(2.0, gt=0, description="exponent of the fraction of correct claims")
        kappa: float = Field(4.0, gt=0, description="number of wrong claims that reduces the reward by a factor of e")
        most_claims: int = Field(10, ge=1, description="number of claims beyond which the detail bonus stops growing")
        decoding: Decoding = Field(SAMPLES, description="decoding settings for the samples that form the consensus")
        least_share: float = Field(
            LEAST_SHARE,
            gt=0,
            le=1,
            description="minimum fraction of the samples that must make a claim for it to count as correct",
        )

        @model_validator(mode="after")
        def fits_the_verifier(self) -> ClaimReward.Config:
            if self.verifier == "truth" and (self.decoding != SAMPLES or self.least_share != LEAST_SHARE):
                raise ValueError("decoding and least_share require verifier = 'consensus'; remove them")
            check_sampling(self.decoding)
            return self

        def needs(self) -> tuple[str, ...]:
            return (*super().needs(), "truth" if self.verifier == "truth" else "start")

        def check(self) -> None:
            if self.verifier == "consensus":
                need_extra("words", "the extraction of claims", "HanTa")

        def build(self, parts: RunParts) -> Reward:
            if self.verifier == "truth":
                return ClaimReward(self)
            return ClaimReward(self, StartSamples(Speaker(parts.start(), pixels=parts.vision_learns), self.decoding))

    def __init__(self, cfg: ClaimReward.Config, samples: StartSamples | None = None) -> None:
        self.cfg, self.samples = cfg, samples

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        counts = self.counts(rollout, batch)
        cfg = self.cfg
        rewards = [
            claim_reward(
                wrong, claims, epsilon=cfg.epsilon, alpha=cfg.alpha, kappa=cfg.kappa, most_claims=cfg.most_claims
            )
            for wrong, claims in counts
        ]
        return torch.tensor(rewards, device=rollout.tokens_RT.device).view(-1, rollout.samples)

    def counts(self, rollout: Rollout, batch: Batch) -> list[tuple[int, int]]:
        """Returns (number of wrong claims, number of claims) for each caption."""
        S = rollout.samples
        if self.samples is None:
            scenes = [item.truth for item in batch.items for _ in range(S)]
            counts = [count_claims(text, scene) for text, scene in zip(rollout.texts, scenes, strict=True)]
            return [(count.claims - count.correct, count.claims) for count in counts]
        both = (rollout.texts, self.samples(batch))
        claims, pooled = ([claims_of(text) for text in texts] for texts in both)
        shares = [*map(confidences, blocks_of(pooled, self.samples.decoding.samples))]
        return [
            (sum(shares[row // S].get(claim, 0.0) < self.cfg.least_share for claim in stated), len(stated))
            for row, stated in enumerate(claims)
        ]
