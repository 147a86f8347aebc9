"""Computes the perplexity of captions under a causal language model, as a measure of fluency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tellapart.metrics.corpus_scores import with_mean
from tellapart.utils.progress import track

_TOKENS_AT_ONCE = 2048


def ppl(captions: Sequence[str], references: Any = None, *, model: Any) -> tuple[float, np.ndarray]:
    """Computes the exponential of the mean negative log-likelihood (in nats) of a caption's tokens. Returns the mean
    and each caption's value.

    ``model`` is a `tellapart.evaluation.language_model.LanguageModel`. Values are at least 1; lower is more fluent, and
    very low values indicate dull captions. The corpus score is the **mean of the captions' perplexities**, as in
    Hugging Face's ``perplexity`` metric. A caption without scorable tokens is NaN.
    """
    return with_mean(of_counts(caption_losses(captions, model)))


def of_counts(loss_N2: np.ndarray) -> np.ndarray:
    """Computes exp(loss / tokens) for each row of `caption_losses`; NaN for a row without tokens."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(loss_N2[:, 1] > 0, np.exp(loss_N2[:, 0] / loss_N2[:, 1]), np.nan)


def caption_losses(captions: Sequence[str], model: Any) -> np.ndarray:
    """Computes each caption's summed negative log-likelihood in nats and its number of scored tokens, N×2.

    Scores every token if the model has a start token, otherwise all but the first. Does not score the end of the
    caption. Scores identical captions once, and captions of similar length together.
    """
    unique = list(dict.fromkeys(captions))
    rows = model.rows(unique)
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    found_U2 = np.zeros((len(rows), 2))
    blocks = _blocks(order, [len(row) for row in rows])
    for block in track(blocks, len(blocks), "language model (batches)"):
        found_U2[block] = _losses(model, [rows[index] for index in block])
    row_of = {text: index for index, text in enumerate(unique)}
    return found_U2[[row_of[text] for text in captions]]


def _blocks(order: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Returns batches that have roughly the same number of tokens (including padding), shortest captions first."""
    blocks: list[list[int]] = []
    for index in order:
        if lengths[index] < 2:
            continue  # nothing to score
        if not blocks or (len(blocks[-1]) + 1) * lengths[index] > _TOKENS_AT_ONCE:
            blocks.append([])
        blocks[-1].append(index)
    return blocks


def _losses(model: Any, rows: Sequence[Sequence[int]]) -> np.ndarray:
    import torch

    width = max(map(len, rows))
    tokens_RT = torch.zeros((len(rows), width), dtype=torch.long)
    valid_RT = torch.zeros((len(rows), width), dtype=torch.bool)
    for number, row in enumerate(rows):
        tokens_RT[number, : len(row)] = torch.tensor(row)
        valid_RT[number, : len(row)] = True
    tokens_RT, valid_RT = tokens_RT.to(model.device), valid_RT.to(model.device)
    with torch.no_grad():
        logits_RTV = model.model(input_ids=tokens_RT, attention_mask=valid_RT.long()).logits[:, :-1].float()
        target_RT = tokens_RT[:, 1:]
        loss_RT = torch.nn.functional.cross_entropy(logits_RTV.transpose(1, 2), target_RT, reduction="none")
        scored_RT = valid_RT[:, 1:]
        loss_RT = torch.where(scored_RT, loss_RT, 0).cpu().double()  # MPS has no float64
    return torch.stack([loss_RT.sum(1), scored_RT.cpu().double().sum(1)], dim=1).numpy()
