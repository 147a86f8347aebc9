"""How far the start model's own samples of a picture agree with a caption, word by word.

What a captioner knows of a picture it says in most of its captions, and what it makes up it says in few: the consensus
of minimum Bayes risk decoding (Kumar and Byrne 2004), and of checking a model by its own samples (Manakul et al. 2023,
SelfCheckGPT). The likelihood of one caption shares a belief among all the ways to say it; a share of samples does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from tellapart.models import ranks
from tellapart.models.decoding import Decoding
from tellapart.rewards.caption_words import FindWords, content_words
from tellapart.rewards.speaker import Speaker
from tellapart.types import Batch, Rollout


class Consensus:
    """The share of the start model's samples that say a content word, as a mean over those of a caption: reward_BS.

    In 0 to 1, and 0 for a caption without content words. Samples are drawn anew at each step, of each picture
    ``decoding.samples``, whatever stands beside it in the batch. Each rank samples for its share of the pictures.
    """

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
        """What the start model says of each picture, ``decoding.samples`` captions side by side."""
        share, seeds = ranks.share(len(batch.rows_B)), batch.seeds
        own = None if seeds is None else seeds.apart("consensus")[share]  # not the numbers that the rollout drew by
        with torch.no_grad():
            rollout = self.speaker.start.generate(self.speaker.visual(batch, share), self.decoding, own)
        return ranks.gather_texts(rollout.texts)


def word_shares(captions: Sequence[str], samples: Sequence[str], find: FindWords = content_words) -> list[float]:
    """For each caption the share of the samples that say a content word of it, as a mean over its words.

    0 to 1, and 0 for a caption without content words. A word counts once in a caption.
    """
    words = {text: distinct_words(text, find) for text in {*samples, *captions}}
    said_by = Counter(word for text in samples for word in words[text])
    return [
        sum(said_by[word] for word in words[caption]) / (len(samples) * max(1, len(words[caption])))
        for caption in captions
    ]


def distinct_words(text: str, find: FindWords) -> set[str]:
    """The content words of a caption in lower case, each once."""
    lower = text.lower()
    return {lower[word.start : word.end] for word in find(lower)}
