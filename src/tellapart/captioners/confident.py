"""Captions without the nouns that the captioner itself is not sure of."""

from __future__ import annotations

import math

import torch

from tellapart.language.phrases import soften, without_repeats
from tellapart.language.words import content_words, words_of_tokens
from tellapart.models.protocols import CaptionerLike
from tellapart.rewards.speaker import Speaker, word_log_probs
from tellapart.types import Rollout


def confident_texts(captioner: CaptionerLike, visual: torch.Tensor, rollout: Rollout, least: float) -> list[str]:
    """The texts without nouns of a probability below ``least``, and without phrases said before.

    A word's probability is that of its tokens under the captioner that wrote them, given the picture and what stands
    before. A noun has to stand somewhere, so its probability says how likely it is to be the right one. An adjective
    may be left out: its probability also says how often it is mentioned, and is no measure of truth (docs/log.md).
    visual: what was captioned, B rows. One more pass over the captions, none over the pictures.
    """
    found, word_RT = words_of_tokens(rollout, captioner.tokenizer, content_words)
    log_p_RT = Speaker(captioner).score(visual, rollout).cpu()
    log_p_RW = word_log_probs(log_p_RT[None], word_RT, max(1, *map(len, found)))[0]
    unlikely_RW = (log_p_RW < math.log(least)).tolist()
    doubted = [
        [word.kind == "head" and unlikely for word, unlikely in zip(words, row[: len(words)], strict=True)]
        for words, row in zip(found, unlikely_RW, strict=True)
    ]
    return [without_repeats(soften(text, row)) for text, row in zip(rollout.texts, doubted, strict=True)]
