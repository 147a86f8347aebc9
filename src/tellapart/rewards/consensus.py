"""Consensus reward: rewards words on which the initial model's own samples for a picture agree.

A captioner mentions what it knows about a picture in most of its samples, but mentions what it hallucinates only in a
few. MBR decoding (Kumar and Byrne 2004) and SelfCheckGPT (Manakul et al. 2023) build on the same consensus. Likelihood
is divided among all phrasings of the same statement; the fraction of samples that mention a word is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import model_validator

from tellapart.language.words import WORD_FINDERS, FindWords, check_words, content_words
from tellapart.models import collectives, ranks
from tellapart.models.decoding import Decoding
from tellapart.rewards.base import Reward, RewardOptions, reward
from tellapart.rewards.run_parts import RunParts
from tellapart.rewards.speaker import Speaker
from tellapart.types import Batch, Rollout


def check_sampling(decoding: Decoding) -> None:
    """Raises ValueError unless ``decoding`` draws several samples per picture and leaves them unedited."""
    if decoding.kind != "sample" or decoding.samples < 2:
        raise ValueError(
            f"decoding is {decoding.kind} with samples = {decoding.samples}; a consensus needs at least 2 samples, so "
            'set kind = "sample" and samples = 16'
        )
    for name in ("confidence", "paragraphs"):
        if getattr(decoding, name):
            raise ValueError(
                f"decoding.{name} edits captions, but the consensus counts unedited samples; remove decoding.{name}"
            )


class Consensus:
    """Computes reward_BS: the fraction of the initial model's samples that contain a content word, averaged over the
    caption's content words.

    The reward is in [0, 1], and 0 for a caption without content words. Each step draws ``decoding.samples`` new samples
    for each picture, independently of the rest of the batch. Each rank generates the samples for its share of the
    pictures.
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
        """Samples ``decoding.samples`` captions for each picture from the initial model, grouped by picture."""
        share, seeds = ranks.share(len(batch.rows_B)), batch.seeds
        own_seeds = (
            None if seeds is None else seeds.apart("consensus")[share]
        )  # independent of the rollout's random numbers
        with torch.no_grad():
            rollout = self.speaker.start.generate(self.speaker.visual(batch, share), self.decoding, own_seeds)
        return collectives.gather_texts(rollout.texts)


def word_shares(captions: Sequence[str], samples: Sequence[str], find: FindWords = content_words) -> list[float]:
    """For each caption, computes the fraction of samples that contain a content word, averaged over its content words.

    The result is in [0, 1], and 0 for a caption without content words. Repeated words count once per caption.
    """
    words = {text: distinct_words(text, find) for text in {*samples, *captions}}
    said_by = Counter(word for text in samples for word in words[text])
    return [
        sum(said_by[word] for word in words[caption]) / (len(samples) * max(1, len(words[caption])))
        for caption in captions
    ]


def distinct_words(text: str, find: FindWords) -> set[str]:
    """Returns the set of lowercase content words in a caption."""
    lower = text.lower()
    return {lower[word.start : word.end] for word in find(lower)}
