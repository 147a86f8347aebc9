"""How different the captions of one picture are: the d(y, y′) of paper 4, for every two samples.

Each takes a rollout and gives B×S×S; words are those of the COCO tools' tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from tellapart.metrics.overlap import bleus
from tellapart.metrics.tokenizer import ptb_tokenize
from tellapart.types import Rollout


def bleu_similarity(rollout: Rollout, reference: str = "both") -> torch.Tensor:
    """BLEU-3 + BLEU-4 of every two samples, 0 to 2: what paper 4 calls d, read literally (section 4.3).

    BLEU is not symmetric. ``reference``: whether in d(y, y′) the ``other`` caption y′ is the reference, one's ``own``
    y, or each in turn, and the mean (``both``). Equal words are 2, also where they are too short for four-grams.
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
    """2 − BLEU-3 − BLEU-4 of every two samples, 0 (equal) to 2: a distance, which paper 4's d is not."""
    return 2 - bleu_similarity(rollout, reference)


def edit_distance(rollout: Rollout) -> torch.Tensor:
    """Words to insert, delete or replace between two samples, over those of the longer one: 0 (equal) to 1."""
    tokens = [text.split() for text in ptb_tokenize(rollout.texts)]
    couples = zip(*sample_pairs(len(tokens), rollout.samples), strict=True)
    value_P = [word_edit_distance(tokens[j], tokens[k]) / max(len(tokens[j]), len(tokens[k]), 1) for j, k in couples]
    return torch.tensor(value_P).view(-1, rollout.samples, rollout.samples)


def word_edit_distance(a: list[str], b: list[str]) -> int:
    """Levenshtein's distance in words."""
    row = list(range(len(b) + 1))
    for n, word in enumerate(a, 1):
        before, row[0] = row[0], n
        for m, other in enumerate(b, 1):
            before, row[m] = row[m], min(row[m] + 1, row[m - 1] + 1, before + (word != other))
    return row[-1]


def sample_pairs(rows: int, samples: int) -> tuple[list[int], list[int]]:
    """Every two of a picture's rows, itself included, picture by picture: B·S·S first ones, and second ones."""
    row_R = np.arange(rows)
    second = np.repeat(row_R.reshape(-1, samples), samples, axis=0)
    return np.repeat(row_R, samples).tolist(), second.reshape(-1).tolist()


def distance_by_name(name: str, reference: str = "both") -> Callable[[Rollout], torch.Tensor]:
    """A distance by its name in a recipe."""
    if name == "edit":
        return edit_distance
    return partial({"bleu": bleu_distance, "bleu-similarity": bleu_similarity}[name], reference=reference)
