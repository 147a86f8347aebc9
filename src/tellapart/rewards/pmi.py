"""Mutual-information reward: how much likelier a caption is for its own picture than for other pictures, under the
initial model.

A scorer's cosine averages over the claims in a caption. A likelihood is a product over the claims, so one false claim
makes the whole caption unlikely. Pointwise mutual information compares the likelihood for the caption's own picture
with the likelihood for other pictures, so that rare synonyms are not penalized (Rational Speech Acts: Frank and Goodman
2012; for captions: Cohn-Gordon et al. 2018).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator

from tellapart.language.words import WORD_FINDERS, FindWords, check_words, content_words
from tellapart.rewards.base import Reward, RewardOptions, reward
from tellapart.rewards.evidence import mutual_information, spread, word_evidence
from tellapart.rewards.run_parts import RunParts
from tellapart.rewards.speaker import Speaker
from tellapart.types import Batch, Rollout


class MutualInformation:
    """Computes the pointwise mutual information between caption and picture under the initial model, in nats.

    ``per``: ``caption`` returns reward_BS; ``word`` returns reward_BST, where the tokens of a content word have the
    word's value, conditioned on the preceding text, and all other tokens have NaN. Text that is independent of the
    picture gets 0; values may be negative.
    """

    @reward(
        "mutual information",
        help="Pointwise mutual information between caption and picture under the initial model.",
        needs=("start",),
    )
    class Config(RewardOptions):
        """Mutual information between caption and picture under the initial model, in nats.

        ``others``: number of other pictures in the batch to compare with; if 0, compares with the average picture.

        ``per``: whether to return one value per ``caption`` or per content ``word``. ``words``: whether to identify
        content words with a closed ``list`` of English function words or with the ``tagger`` HanTa (extra ``words``).
        """

        kind: Literal["pmi"]
        others: int = Field(0, ge=0)
        per: Literal["caption", "word"] = "caption"
        words: Literal["list", "tagger"] = "list"

        @model_validator(mode="after")
        def has_an_effect(self) -> MutualInformation.Config:
            if self.words == "tagger" and self.per == "caption":
                raise ValueError(
                    "words selects the words that are rewarded one by one, but per = 'caption'; set per = 'word' or "
                    "remove words"
                )
            return self

        @property
        def per_token(self) -> bool:
            return self.per == "word"

        def check(self) -> None:
            check_words(self.words)

        def build(self, parts: RunParts) -> Reward:
            speaker = Speaker(parts.start(), self.others, pixels=parts.vision_learns)
            return MutualInformation(speaker, per=self.per, find=WORD_FINDERS[self.words])

    def __init__(
        self, speaker: Speaker, *, per: Literal["caption", "word"] = "caption", find: FindWords = content_words
    ) -> None:
        self.speaker, self.per, self.find = speaker, per, find

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        log_p_ORT = self.speaker.log_probs(rollout, batch).cpu()
        if self.per == "caption":
            return mutual_information(log_p_ORT.sum(2)).view(-1, rollout.samples)
        words = word_evidence(log_p_ORT, rollout, self.speaker.start.tokenizer, self.find)
        return spread(words.evidence_RW, words.word_RT).view(-1, rollout.samples, rollout.tokens_RT.shape[1])
