"""Rewards words that the start model's own samples of a picture agree on.

What a captioner knows of a picture it says in most of its captions, and what it makes up it says in few: the consensus
of minimum Bayes risk decoding (Kumar and Byrne 2004), and of checking a model by its own samples (Manakul et al. 2023,
SelfCheckGPT). The likelihood of one caption shares a belief among all the ways to say it; a share of samples does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import model_validator

from tellapart.language.words import WORD_FINDERS, FindWords, check_words, content_words
from tellapart.models import ranks
from tellapart.models.decoding import Decoding
from tellapart.rewards.base import Reward, RewardOptions, RunParts, reward
from tellapart.rewards.speaker import Speaker
from tellapart.types import Batch, Rollout


class Consensus:
    """The share of the start model's samples that say a content word, as a mean over those of a caption: reward_BS.

    In 0 to 1, and 0 for a caption without content words. Samples are drawn anew at each step, of each picture
    ``decoding.samples``, whatever stands beside it in the batch. Each rank samples for its share of the pictures.
    """

    @reward("consensus", help="How many of the start model's own samples say the caption's words.", needs=("start",))
    class Config(RewardOptions):
        """Share of the start model's own samples that say a content word, a mean over those of the caption, in 0 to 1.

        ``decoding``: of these samples, drawn anew for each picture at each step. ``words``: which words count, by a
        closed list of English function words, or by the ``tagger`` HanTa (the extra words).
        """

        kind: Literal["consensus"]
        decoding: Decoding = Decoding(kind="sample", samples=16, temperature=0.6)
        words: Literal["list", "tagger"] = "list"

        @model_validator(mode="after")
        def is_sampled(self) -> Consensus.Config:
            if self.decoding.kind != "sample" or self.decoding.samples < 2:
                raise ValueError(
                    f"decoding is {self.decoding.kind} with samples = {self.decoding.samples}; a consensus is among "
                    'samples, so set kind = "sample" and samples to at least 2'
                )
            if self.decoding.confidence:
                raise ValueError(
                    "decoding.confidence edits captions, and samples count as they are written; leave it out"
                )
            return self

        def check(self) -> None:
            check_words(self.words)

        def build(self, parts: RunParts) -> Reward:
            speaker = Speaker(parts.start(), pixels=parts.vision_learns)
            return Consensus(speaker, self.decoding, find=WORD_FINDERS[self.words])

    def __init__(self, speaker: Speaker, decoding: Decoding, *, find: FindWords = content_words) -> None:
        self.speaker, self.decoding, self.find = speaker, decoding, find

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        pool, N, S = self.samples(batch), self.decoding.samples, rollout.samples
        rewards = [
            word_shares(rollout.texts[b * S : b * S + S], pool[b * N : b * N + N], self.find)
            for b in range(len(batch.rows_B))
        ]
        return torch.tensor(rewards, device=rollout.tokens_RT.device)

    def samples(self, batch: Batch) -> list[str]:
        """Generates ``decoding.samples`` captions of each picture with the start model, side by side."""
        share, seeds = ranks.share(len(batch.rows_B)), batch.seeds
        own_seeds = (
            None if seeds is None else seeds.apart("consensus")[share]
        )  # not the numbers that the rollout drew by
        with torch.no_grad():
            rollout = self.speaker.start.generate(self.speaker.visual(batch, share), self.decoding, own_seeds)
        return ranks.gather_texts(rollout.texts)


def word_shares(captions: Sequence[str], samples: Sequence[str], find: FindWords = content_words) -> list[float]:
    """Computes for each caption the share of the samples that contain a content word of it, as a mean over its words.

    0 to 1, and 0 for a caption without content words. A word counts once in a caption.
    """
    words = {text: distinct_words(text, find) for text in {*samples, *captions}}
    said_by = Counter(word for text in samples for word in words[text])
    return [
        sum(said_by[word] for word in words[caption]) / (len(samples) * max(1, len(words[caption])))
        for caption in captions
    ]


def distinct_words(text: str, find: FindWords) -> set[str]:
    """Returns the content words of a caption in lower case, each once."""
    lower = text.lower()
    return {lower[word.start : word.end] for word in find(lower)}
