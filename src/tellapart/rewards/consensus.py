"""Consensus reward: rewards words on which the initial model's own samples for a picture agree.

A captioner mentions what it knows about a picture in most of its samples, but mentions what it hallucinates only in a
few. MBR decoding (Kumar and Byrne 2004) and SelfCheckGPT (Manakul et al. 2023) build on the same consensus. Likelihood
is divided among all phrasings of the same statement; the fraction of samples that mention a word is not.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import model_validator

from tellapart.language.word_shares import word_shares
from tellapart.language.words import WORD_FINDERS, FindWords, check_words, content_words
from tellapart.models.decoding import Decoding
from tellapart.rewards.base import Reward, RewardOptions, reward
from tellapart.rewards.run_parts import RunParts
from tellapart.rewards.speaker import Speaker
from tellapart.rewards.start_samples import StartSamples, check_sampling
from tellapart.types import Batch, Rollout


class Consensus:
    """Computes reward_BS: the fraction of the initial model's samples that contain a content word, averaged over the
    caption's content words.

    The reward is in [0, 1], and 0 for a caption without content words.
    """

    @reward(
        "consensus",
        help="Fraction of the initial model's own samples that contain a content word, averaged over the caption.",
        needs=("start",),
    )
    class Config(RewardOptions):
        """Fraction of the initial model's own samples that contain a content word, averaged over the caption's content
        words.

        The reward is in [0, 1]. ``decoding``: how to draw these samples for each picture and step. ``words``: whether
        to identify content words with a closed ``list`` of English function words or with the ``tagger`` HanTa (extra
        ``words``).
        """

        kind: Literal["consensus"]
        decoding: Decoding = Decoding(kind="sample", samples=16, temperature=0.6)
        words: Literal["list", "tagger"] = "list"

        @model_validator(mode="after")
        def is_sampled(self) -> Consensus.Config:
            check_sampling(self.decoding)
            return self

        def check(self) -> None:
            check_words(self.words)

        def build(self, parts: RunParts) -> Reward:
            samples = StartSamples(Speaker(parts.start(), pixels=parts.vision_learns), self.decoding)
            return Consensus(samples, find=WORD_FINDERS[self.words])

    def __init__(self, samples: StartSamples, *, find: FindWords = content_words) -> None:
        self.samples, self.find = samples, find

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        pool, N, S = self.samples(batch), self.samples.decoding.samples, rollout.samples
        rewards = [
            word_shares(rollout.texts[b * S : b * S + S], pool[b * N : b * N + N], self.find)
            for b in range(len(batch.rows_B))
        ]
        return torch.tensor(rewards, device=rollout.tokens_RT.device)
