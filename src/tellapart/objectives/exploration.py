"""Sequence-level exploration (paper 4): a diversity term for policy gradients.

Distance functions d(y, y′) take a rollout and return B×S×S, one value for each pair of samples for a picture. The COCO
tools' tokenizer splits captions into words.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import torch
from pydantic import Field, model_validator

from tellapart.metrics.bleu_score import bleus
from tellapart.metrics.ptb import ptb_tokenize
from tellapart.types import Rollout
from tellapart.utils.option_tables import Strict


def exploration(
    precision_BS: torch.Tensor, distance_BSS: torch.Tensor, alpha: float = 0.75, baseline: str = "matching"
) -> torch.Tensor:
    """Computes the advantages B×S (paper 4, eq. 16), for which the policy gradient ascends eq. 8.

        α · (Δ_j − b)  +  (1 − α) · (2/s) · (Σ_k d(j, k) − b′)

    precision_BS: Δ − b, the reward minus its baseline.
    distance_BSS: d for each pair of samples for a picture, non-negative.
    alpha: in [0, 1]; 1 is REINFORCE without diversity.
    baseline: b′. ``matching`` is the picture's mean of Σ_k d. ``literal`` is the paper's mean over all s² pairs
        (section 4.3), which is s times smaller than the sum from which it is subtracted, so nearly all advantages are
        positive. ``leave_one_out`` estimates Σ_k d from the pairs that do not contain j. ``none`` is 0.

    ``matching`` and ``literal`` include j's own distances, which cancels part of the diversity gradient. Relative to
    eq. 8, the fraction that remains is (1 − 1/s)(1 − 2/s) with ``matching``, (1 − 1/s)(1 − 2/s²) with ``literal``, and
    1 − 1/s with ``leave_one_out`` and ``none`` (eq. 14 counts k = j): 0.48, 0.736 and 0.8 for five samples.
    ``leave_one_out`` and ``matching`` require three samples. Raises `ValueError` for an unknown baseline.
    """
    S = distance_BSS.shape[-1]
    diversity_BS = distance_BSS.sum(2)
    # eq. 16 of paper 4
    return alpha * precision_BS + (1 - alpha) * 2 / S * (diversity_BS - expected(distance_BSS, baseline))


def expected(distance_BSS: torch.Tensor, baseline: str) -> torch.Tensor | float:
    """Computes b′ of `exploration`: B×1, B×S or 0."""
    S = distance_BSS.shape[-1]
    if baseline == "none":
        return 0.0
    if baseline == "leave_one_out":
        itself_BS = distance_BSS.diagonal(dim1=1, dim2=2)
        apart_BSS = distance_BSS - torch.diag_embed(itself_BS)
        without_BS = apart_BSS.sum((1, 2))[:, None] - apart_BSS.sum(1) - apart_BSS.sum(2)
        return without_BS / (S - 2) + itself_BS
    mean_B1 = distance_BSS.sum(2).mean(1, keepdim=True)
    if baseline not in ("matching", "literal"):
        raise ValueError(f"baseline is '{baseline}'; expected matching, literal, leave_one_out or none")
    return mean_B1 if baseline == "matching" else mean_B1 / S


class Exploration(Strict):
    """Adds diversity to the advantage (paper 4): α · (reward − baseline) + (1 − α) · diversity (see `exploration`).

    The defaults correct the paper; ``distance = "bleu-similarity"`` and ``baseline = "literal"`` follow its text.
    """

    alpha: float = Field(0.75, ge=0, le=1)
    distance: Literal["bleu", "edit", "bleu-similarity"] = "bleu"
    reference: Literal["both", "other", "own"] = Field(
        "both", description="caption in a pair that serves as BLEU's reference"
    )
    baseline: Literal["matching", "literal", "leave_one_out", "none"] = "matching"

    @property
    def apart(self) -> bool:
        """Returns True if the baseline compares a sample's distances with the other samples' distances."""
        return self.alpha < 1 and self.baseline in ("matching", "leave_one_out")

    @model_validator(mode="after")
    def has_an_effect(self) -> Exploration:
        if self.distance == "edit" and self.reference != "both":
            raise ValueError(
                f"distance = 'edit' is symmetric, so reference = '{self.reference}' has no effect; remove it"
            )
        return self

    def __call__(self, precision_BS: torch.Tensor, rollout: Rollout) -> tuple[torch.Tensor, float]:
        """Returns the advantages B×S, and (for the log) the mean distance between samples for the same picture."""
        distance_BSS = distance_by_name(self.distance, self.reference)(rollout).to(precision_BS.device)
        apart_SS = ~torch.eye(rollout.samples, dtype=torch.bool, device=distance_BSS.device)
        mean = float(distance_BSS[:, apart_SS].mean())
        return exploration(precision_BS, distance_BSS, self.alpha, self.baseline), mean


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


def distance_by_name(name: str, reference: str = "both") -> Callable[[Rollout], torch.Tensor]:
    """Returns the distance function with this name in recipes."""
    if name == "edit":
        return edit_distance
    return partial({"bleu": bleu_distance, "bleu-similarity": bleu_similarity}[name], reference=reference)
