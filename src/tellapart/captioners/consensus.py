"""MBR decoding: selects the sample that agrees most with all samples.

A captioner repeats what it knows about a picture in most of its samples, but makes any given error in only a few. The
most likely caption, which beam search looks for, can be a different one, because probability is split among all
phrasings of the same content (Kumar and Byrne 2004; Eikema and Aziz 2020).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tellapart.language.sentences import sentences
from tellapart.language.word_shares import word_shares
from tellapart.metrics.cider import count_ngrams, length_penalty
from tellapart.metrics.ptb import ptb_tokenize


def consensus(samples: Sequence[str], bonus_S: np.ndarray | None = None) -> str:
    """Returns the sample with the highest `mean_similarity`. If several samples tie, returns the first one.

    Never returns an empty sample, unless all samples are empty. ``bonus_S``: a value to add to the similarity of each
    of the S samples.
    """
    kept = [place for place, text in enumerate(samples) if text]
    if not kept:
        return ""
    total_K = mean_similarity([samples[place] for place in kept])
    if bonus_S is not None:
        total_K = total_K + bonus_S[kept]
    return samples[kept[int(total_K.argmax())]]


def mean_similarity(samples: Sequence[str]) -> np.ndarray:
    """For each of S samples, computes its agreement with all samples, including the sample itself, in [0, 5].

    This is the fraction of samples that contain a content word, averaged over the words in the sample (0 to 1), plus
    the mean similarity to all samples (0 to 4). The similarity is CIDEr-D without document frequencies, so that a
    caption does not depend on other pictures: the sum over n = 1 to 4 of the cosine of n-gram counts, times a Gaussian
    of the length difference (Vedantam et al. 2015, section 4). CIDEr-D compares sentences. Samples with several
    sentences are therefore compared sentence by sentence: each sentence is compared with the most similar sentence in
    the other sample, and the results are averaged over sentences and then over both directions.
    """
    parts = [sentences(text) or [text] for text in samples]
    flat = [part for parts_of_sample in parts for part in parts_of_sample]
    row_of = {part: row for row, part in enumerate(dict.fromkeys(flat))}  # samples often share sentences
    row_U = [row_of[part] for part in flat]
    similarity_UU = _similarity(list(row_of))[np.ix_(row_U, row_U)]
    count_S = np.array([len(parts_of_sample) for parts_of_sample in parts])
    first_S = count_S.cumsum() - count_S
    best_US = np.maximum.reduceat(similarity_UU, first_S, axis=1)  # best match of each sentence in each sample
    one_way_SS = np.add.reduceat(best_US, first_S, axis=0) / count_S[:, None]
    total_S: np.ndarray = np.array(word_shares(samples, samples)) + ((one_way_SS + one_way_SS.T) / 2).mean(1)
    return total_S


def _similarity(texts: Sequence[str]) -> np.ndarray:
    """Computes similarity_UU between U sentences, in [0, 4]."""
    size = len(texts)
    length_U, counts_4 = count_ngrams(ptb_tokenize(texts))
    similarity_UU = np.zeros((size, size))
    for counts in counts_4:
        count_UG = np.zeros((size, len(counts.hash_G)))
        count_UG[counts.sentence_E, counts.gram_E] = counts.count_E
        unit_UG = count_UG / np.maximum(np.linalg.norm(count_UG, axis=1, keepdims=True), 1)  # 0 if there are no n-grams
        similarity_UU += unit_UG @ unit_UG.T
    similarity_UU *= length_penalty(length_U[:, None] - length_U)
    return similarity_UU
