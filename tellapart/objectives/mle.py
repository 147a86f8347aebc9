"""Maximum likelihood: the references, token by token."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tellapart.objectives.base import Loss, Stateless
from tellapart.types import Batch


def mle_loss(
    logits_BTV: torch.Tensor, target_BT: torch.Tensor, valid_BT: torch.Tensor, *, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Cross-entropy of the references, mean over valid tokens, in nats (paper 1, eq. 1).

    logits_BTV raw scores; target_BT token ids; valid_BT False on padding. Raises ValueError where no
    token is valid.
    """
    if not bool(valid_BT.any()):
        raise ValueError("no valid token in the batch; expected at least one caption with an end token")
    return F.cross_entropy(logits_BTV[valid_BT].float(), target_BT[valid_BT], label_smoothing=label_smoothing)


class Mle(Stateless):
    """`mle_loss` of the batch's references."""

    def __init__(self, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing

    def __call__(self, learner: Any, batch: Batch) -> Loss:
        assert batch.tokens_RT is not None and batch.valid_RT is not None
        logits_RTV = learner.logits(batch.visual, batch.tokens_RT, batch.valid_RT)
        loss = mle_loss(logits_RTV, batch.tokens_RT, batch.valid_RT, label_smoothing=self.label_smoothing)
        return Loss(loss)
