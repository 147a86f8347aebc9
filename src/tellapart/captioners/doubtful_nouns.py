"""Removes nouns that the captioner is not confident about from captions."""

from __future__ import annotations

import math

import torch

from tellapart.language.condensing import without_repeats
from tellapart.language.soften import soften
from tellapart.language.token_words import words_of_tokens
from tellapart.language.words import content_words
from tellapart.models.protocols import CaptionerLike
from tellapart.rewards.evidence import word_log_probs
from tellapart.rewards.speaker import Speaker
from tellapart.types import Rollout


def confident_texts(captioner: CaptionerLike, visual: torch.Tensor, rollout: Rollout, least: float) -> list[str]:
    """Removes nouns with a probability below ``least``, and repeated phrases, from the captions.

    A word's probability is the probability of its tokens under the captioner that generated them, given the picture and
    the preceding text. A sentence needs its nouns, so a noun's probability measures how likely the noun is to be
    correct. Adjectives are optional: their probability also reflects how often people mention them, so it does not
    measure whether they are true.

    Needs one additional pass over the captions, but none over the pictures.

    visual: the input from which the captions were generated, B rows.
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
