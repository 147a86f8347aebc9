"""Algorithm 1 of paper 1 as it is printed there, beside which ours is held."""

from __future__ import annotations

import torch
from torch.nn import CrossEntropyLoss


def algorithm_1(logits: torch.Tensor, labels: torch.Tensor, first_token_mle: bool = True) -> torch.Tensor:
    """logits B×N×V, labels B×N without padding."""
    B, N, V = logits.shape
    # each sequence gets a unique mask to mask words not in the sequence
    logits_mask = torch.zeros(B, V, dtype=torch.bool, device=logits.device).scatter_(1, labels, True)
    # expand for every position in the sequence
    logits_mask = logits_mask.unsqueeze(1).expand(-1, N, -1).clone()
    # perform first-token MLE (optional)
    if first_token_mle:
        logits_mask[:, 0, :] = True
    # apply mask to the logits
    selected_logits = logits.masked_fill(logits_mask == False, float("-inf"))  # noqa: E712
    return CrossEntropyLoss()(selected_logits.view(-1, V), labels.reshape(-1))


def algorithm_1_padded(
    logits: torch.Tensor, labels: torch.Tensor, valid: torch.Tensor, first_token_mle: bool = True
) -> torch.Tensor:
    """The same for captions of several lengths, padded on the right: one by one, so that padding cannot enter."""
    lengths = valid.sum(1).tolist()
    losses = [
        n * algorithm_1(logits[b : b + 1, :n], labels[b : b + 1, :n], first_token_mle)
        for b, n in enumerate(lengths)
        if n
    ]
    return sum(losses) / sum(lengths)  # type: ignore[return-value]
