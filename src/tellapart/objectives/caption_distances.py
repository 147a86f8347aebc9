"""Distances between the sampled captions of a picture.

Distance functions d(y, y′) take a rollout and return B×S×S, one value for each pair of samples for a picture. The COCO
tools' tokenizer splits captions into words, except for `word_distance`, which compares content words.
"""

from __future__ import annotations

import numpy as np
import torch

from tellapart.language.words import content_words
from tellapart.metrics.bleu_score import bleus
from tellapart.metrics.ptb import ptb_tokenize
from tellapart.types import Rollout


def bleu_similarity(rollout: Rollout, reference: str = "both") -> torch.Tensor:
    """Computes BLEU-3 + BLEU-4 for each pair of samples, in [0, 2]: paper 4's d, taken literally (section 4.3).

    Equal captions get 2, even if they are too short for 4-grams.

    reference: BLEU is not symmetric, so this option sets the reference for d(y, y′): ``other`` uses y′, ``own`` uses y,
        and ``both`` averages the two values.
    """

    texts, S = rollout.texts, rollout.samples
    first, second = sample_pairs(len(texts), S)
    _, score_KP = bleus([texts[j] for j in first], [[texts[k]] for k in second])
    tokens = ptb_tokenize(texts)
    equal_P = np.array([tokens[j] == tokens[k] for j, k in zip(first, second, strict=True)])
    score_BSS = np.where(equal_P, 2.0, score_KP[2] + score_KP[3]).reshape(-1, S, S)
    turned_BSS = score_BSS.transpose(0, 2, 1)
    chosen_BSS = {"both": (score_BSS + turned_BSS) / 2, "other": score_BSS, "own": turned_BSS}[reference]
    return torch.from_numpy(chosen_BSS.copy()).float()


def bleu_distance(rollout: Rollout, reference: str = "both") -> torch.Tensor:
    """Computes 2 − BLEU-3 − BLEU-4 for each pair of samples, from 0 (equal) to 2. Unlike paper 4's d, it is a
    distance.
    """
    return 2 - bleu_similarity(rollout, reference)


def edit_distance(rollout: Rollout) -> torch.Tensor:
    """Computes the word edit distance of each pair of samples, divided by the length of the longer sample, from 0
    (equal) to 1.
    """
    tokens = [text.split() for text in ptb_tokenize(rollout.texts)]
    couples = zip(*sample_pairs(len(tokens), rollout.samples), strict=True)
    value_P = [word_edit_distance(tokens[j], tokens[k]) / max(len(tokens[j]), len(tokens[k]), 1) for j, k in couples]
    return torch.tensor(value_P).view(-1, rollout.samples, rollout.samples)


def word_edit_distance(a: list[str], b: list[str]) -> int:
    """Computes the Levenshtein distance between two lists of words."""
    row = list(range(len(b) + 1))
    for n, word in enumerate(a, 1):
        before, row[0] = row[0], n
        for m, other in enumerate(b, 1):
            before, row[m] = row[m], min(row[m] + 1, row[m - 1] + 1, before + (word != other))
    return row[-1]


def sample_pairs(rows: int, samples: int) -> tuple[list[int], list[int]]:
    """Returns the first and second rows of all B·S·S pairs, including self-pairs, grouped by picture."""
    row_R = np.arange(rows)
    second = np.repeat(row_R.reshape(-1, samples), samples, axis=0)
    return np.repeat(row_R, samples).tolist(), second.reshape(-1).tolist()


def word_distance(rollout: Rollout) -> torch.Tensor:
    """Computes a distance for each pair of samples, B×S×S: 0 if they contain the same set of content words, else 1."""
    spoken = [
        frozenset(text[word.start : word.end] for word in content_words(text))
        for text in (text.lower() for text in rollout.texts)
    ]
    names = {words: number for number, words in enumerate(dict.fromkeys(spoken))}
    class_BS = torch.tensor([names[words] for words in spoken]).view(-1, rollout.samples)
    return (class_BS[:, :, None] != class_BS[:, None]).float()


def half_bleu_distance(rollout: Rollout) -> torch.Tensor:
    """Computes 1 minus the mean of BLEU-3 and BLEU-4 for each pair of samples, B×S×S, from 0 to 1."""
    return bleu_distance(rollout) / 2
