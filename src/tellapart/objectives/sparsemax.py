"""Sparsemax loss: maximum likelihood that ignores sufficiently improbable words (Martins and Astudillo 2016).

Sparsemax is the Euclidean projection of the scores onto the probability simplex. Most words get probability 0: they
are outside the support and get no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from tellapart.models import output_layer as head
from tellapart.models.precision import at_least_float32
from tellapart.models.protocols import CaptionerLike
from tellapart.objectives.base import ObjectiveOptions, Supervised, objective
from tellapart.objectives.labels import check_labels
from tellapart.objectives.reference_loss import head_loss_of, loss_of_references
from tellapart.rewards.run_parts import RunParts
from tellapart.types import Batch, Loss


def sparsemax_threshold(scores_NV: torch.Tensor) -> torch.Tensor:
    """Computes the threshold τ, N×1, such that Σ_v max(0, z_v − τ) = 1."""
    sorted_NV = scores_NV.sort(1, descending=True).values
    total_NV = sorted_NV.cumsum(1)
    rank_V = torch.arange(1, scores_NV.shape[1] + 1, device=scores_NV.device, dtype=scores_NV.dtype)
    size_N1 = (1 + rank_V * sorted_NV > total_NV).sum(1, keepdim=True)
    return (total_NV.gather(1, size_N1 - 1) - 1) / size_N1


def sparsemax(scores_NV: torch.Tensor) -> torch.Tensor:
    """Computes max(0, z − τ), the projection of scores onto the probability simplex, N×V."""
    # Subtract the largest score so that sums of thousands of scores keep their precision.
    centred_NV = scores_NV - scores_NV.amax(1, keepdim=True)
    return (centred_NV - sparsemax_threshold(centred_NV)).clamp(min=0)


def sparsemax_loss(logits_BTV: torch.Tensor, labels_BT: torch.Tensor, valid_BT: torch.Tensor) -> torch.Tensor:
    """Computes the mean over valid tokens of −z_y + ½ Σ_{v∈S} (z_v² − τ²) + ½, at least 0.

    S is the support of `sparsemax`. The gradient with respect to the scores is sparsemax(z) minus the one-hot label.
    Raises ValueError if no token is valid.
    """
    check_labels(labels_BT, valid_BT)
    return sparsemax_losses(at_least_float32(logits_BTV[valid_BT]), labels_BT[valid_BT][:, None]).mean()


def sparsemax_losses(scores_NV: torch.Tensor, label_N1: torch.Tensor) -> torch.Tensor:
    """Computes the sparsemax loss of each token, N×1. Adding a constant to a token's scores does not affect it."""
    centred_NV = scores_NV - scores_NV.detach().amax(1, keepdim=True)
    tau_N1 = sparsemax_threshold(centred_NV)
    support_NV = centred_NV > tau_N1
    inside_N1 = torch.where(support_NV, centred_NV**2 - tau_N1**2, 0.0).sum(1, keepdim=True)
    return inside_N1 / 2 - centred_NV.gather(1, label_N1) + 0.5


@dataclass(frozen=True)
class SparsemaxTerm(head.VocabularyTerm):
    """`sparsemax_loss` as a term of `head_loss`, multiplied by ``share``."""

    def cross_entropy(self, scores_nV: torch.Tensor, n: slice, learns: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes the loss for a chunk of tokens, and its gradient with respect to the scores."""
        label_n1 = self.label_N[n, None]
        loss = self.share * sparsemax_losses(scores_nV, label_n1).sum()
        grad_nV = sparsemax(scores_nV)
        one_n1 = torch.ones_like(grad_nV[:, :1])
        return loss, grad_nV.scatter_add_(1, label_n1, -one_n1).mul_(self.share)


class Sparsemax(Supervised[CaptionerLike]):
    """`sparsemax_loss` on the batch's references."""

    @objective(
        "sparsemax",
        help="Sparsemax loss on the references: improbable words get no gradient.",
        direction="lower",
        loss_selects=False,
    )
    class Config(ObjectiveOptions):
        """Sparsemax loss on the references. Captions are still generated with softmax."""

        kind: Literal["sparsemax"]

        def build(self, parts: RunParts) -> Sparsemax:
            return Sparsemax()

    def __call__(self, learner: CaptionerLike, batch: Batch) -> Loss:
        assert batch.tokens_RT is not None and batch.valid_RT is not None
        references = batch.visual, batch.tokens_RT, batch.valid_RT
        return Loss(loss_of_references(learner, *references, sparsemax_loss, head_loss_of(SparsemaxTerm)))
