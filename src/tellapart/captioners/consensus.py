"""MBR decoding, and removal of nouns that the captioner is not confident about; both run after generation.

A captioner repeats what it knows about a picture in most of its samples and each error in few. The likeliest caption,
which beam search looks for, divides that probability among all phrasings (Kumar and Byrne 2004; Eikema and Aziz 2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from tellapart.language.phrases import soften, without_repeats
from tellapart.language.words import content_words, sentences, words_of_tokens
from tellapart.metrics.cider import Grams, length_penalty
from tellapart.metrics.ptb import ptb_tokenize
from tellapart.models.protocols import CaptionerLike
from tellapart.rewards.consensus import word_shares
from tellapart.rewards.speaker import Speaker, word_log_probs
from tellapart.types import Rollout


def consensus(samples: Sequence[str], bonus_S: np.ndarray | None = None) -> str:
    """Returns the sample with the highest `agreement`, the first among ties; empty only if all samples are empty.

    ``bonus_S``: added to the agreement of each of the S samples.
    """
    kept = [place for place, text in enumerate(samples) if text]
    if not kept:
        return ""
    total_K = agreement([samples[place] for place in kept])
    if bonus_S is not None:
        total_K = total_K + bonus_S[kept]
    return samples[kept[int(total_K.argmax())]]


def agreement(samples: Sequence[str]) -> np.ndarray:
    """Computes agreement_S, how well the S samples agree with each sample (itself included), in [0, 5].

    This is the fraction of samples that contain a content word, averaged over the words of the sample (0 to 1), plus
    the mean similarity (0 to 4). The similarity is CIDEr-D without document frequencies, so that a caption does not
    depend on other pictures: the sum over n = 1 to 4 of the cosine of n-gram counts, times a Gaussian of the length
    difference (Vedantam et al. 2015, section 4). CIDEr-D compares sentences. Samples of several sentences are therefore
    compared by sentence: each sentence with the most similar one of the other sample, averaged over sentences and then
    over both directions.
    """
    parts = [sentences(text) or [text] for text in samples]
    row_of = {
        part: row
        for row, part in enumerate(dict.fromkeys(part for samples_of_picture in parts for part in samples_of_picture))
    }
    row_U = [
        row_of[part] for samples_of_picture in parts for part in samples_of_picture
    ]  # samples often share sentences
    similarity_UU = _similarity(list(row_of))[np.ix_(row_U, row_U)]
    count_S = np.array([len(samples_of_picture) for samples_of_picture in parts])
    first_S = count_S.cumsum() - count_S
    best_US = np.maximum.reduceat(similarity_UU, first_S, axis=1)  # best match of each sentence in each sample
    one_way_SS = np.add.reduceat(best_US, first_S, axis=0) / count_S[:, None]
    total_S: np.ndarray = np.array(word_shares(samples, samples)) + ((one_way_SS + one_way_SS.T) / 2).mean(1)
    return total_S


def _similarity(texts: Sequence[str]) -> np.ndarray:
    """Computes similarity_UU between U sentences, in [0, 4]."""
    grams, size = Grams.of(ptb_tokenize(texts)), len(texts)
    sentence_P = np.repeat(np.arange(size), grams.length_M)
    similarity_UU = np.zeros((size, size))
    for gram_P in grams.gram_OP:
        there_P = gram_P >= 0
        gram_G, place_S = np.unique(gram_P[there_P], return_inverse=True)
        count_UG = np.zeros((size, len(gram_G)))
        np.add.at(count_UG, (sentence_P[there_P], place_S), 1)
        unit_UG = count_UG / np.maximum(np.linalg.norm(count_UG, axis=1, keepdims=True), 1)  # 0 if there are no n-grams
        similarity_UU += unit_UG @ unit_UG.T
    similarity_UU *= length_penalty(grams.length_M[:, None] - grams.length_M)
    return similarity_UU


def confident_texts(captioner: CaptionerLike, visual: torch.Tensor, rollout: Rollout, least: float) -> list[str]:
    """Removes nouns with a probability below ``least``, and repeated phrases, from the texts.

    A word's probability is that of its tokens under the captioner that wrote them, given the picture and the preceding
    text. A sentence needs its nouns, so a noun's probability measures how likely it is to be correct. Adjectives are
    optional: their probability also reflects how often they are mentioned and does not measure truth (docs/research).
    visual: the captioned input, B rows. Needs one extra pass over the captions and none over the pictures.
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
