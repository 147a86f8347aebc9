"""GEM: maximum likelihood that preserves the diversity of the model (Li et al. 2025, arXiv 2408.16673).

Cross-entropy moves probability from all words to the label. GEM moves probability only from the words that a sharpened
copy q of the model prefers: the gradient with respect to the logits is q − onehot. Once the label is the most probable
word, this gradient fades sooner, so that samples remain diverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field

from tellapart.models import output_layer as head
from tellapart.models.precision import at_least_float32
from tellapart.models.protocols import CaptionerLike
from tellapart.objectives.base import ObjectiveOptions, Supervised, objective
from tellapart.objectives.labels import check_labels
from tellapart.objectives.reference_loss import head_loss_of, loss_of_references
from tellapart.rewards.run_parts import RunParts
from tellapart.types import Batch, Loss

Weighting = Literal["linear", "log_sigmoid"]
SIGMOID_SLOPE = 0.01  # from the authors' code, for h = log-sigmoid


def gem_loss(
    logits_BTV: torch.Tensor,
    labels_BT: torch.Tensor,
    valid_BT: torch.Tensor,
    *,
    beta: float = 0.7,
    h: Weighting = "linear",
) -> torch.Tensor:
    """Computes the GEM loss in nats: the mean over valid tokens of −Σ_v q_v · w_v · (log p_y − log p_v).

    p is the softmax of the logits z, q is the softmax of z / ``beta``, and y is the label. q and w get no gradient.

    beta: in (0, 1]. With lower values, fewer words (the most probable ones) lose probability to the label.
    h: ``linear`` sets w to 1; ``log_sigmoid`` sets w_v to sigmoid(0.01 · (z_v − z_y)), as in the authors' code.

    Raises ValueError if no token is valid.
    """
    check_labels(labels_BT, valid_BT)
    scores_NV, label_N1 = at_least_float32(logits_BTV[valid_BT]), labels_BT[valid_BT][:, None]
    log_p_NV = scores_NV.log_softmax(-1)
    weight_NV = gem_weights(scores_NV.detach(), label_N1, beta, h)
    return -(weight_NV * (log_p_NV.gather(1, label_N1) - log_p_NV)).sum(1).mean()


def gem_weights(scores_NV: torch.Tensor, label_N1: torch.Tensor, beta: float, h: Weighting) -> torch.Tensor:
    """Computes the weights q_v · w_v of `gem_loss`, N×V."""
    q_NV = (scores_NV / beta).softmax(-1)
    if h == "log_sigmoid":
        q_NV = q_NV * torch.sigmoid(SIGMOID_SLOPE * (scores_NV - scores_NV.gather(1, label_N1)))
    return q_NV


@dataclass(frozen=True)
class GemTerm(head.VocabularyTerm):
    """`gem_loss` as a term of `head_loss`, multiplied by ``share``."""

    beta: float = 0.7
    h: Weighting = "linear"

    def cross_entropy(self, scores_nV: torch.Tensor, n: slice, learns: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes the loss for a chunk of tokens, and its gradient with respect to the logits."""
        label_n1 = self.label_N[n, None]
        weight_nV = gem_weights(scores_nV, label_n1, self.beta, self.h)
        log_p_nV = scores_nV.log_softmax(-1)
        total_n1 = weight_nV.sum(1, keepdim=True)
        expected_n1 = (weight_nV * log_p_nV).sum(1, keepdim=True)
        loss = self.share * (expected_n1 - total_n1 * log_p_nV.gather(1, label_n1)).sum()
        # The softmax part of the gradient cancels, because both terms have the same total weight.
        return loss, weight_nV.scatter_add_(1, label_n1, -total_n1).mul_(self.share)


class Gem(Supervised[CaptionerLike]):
    """`gem_loss` on the batch's references."""

    @objective(
        "GEM",
        help="Maximum likelihood on the references that preserves the diversity of samples (GEM).",
        direction="lower",
        loss_selects=False,
    )
    class Config(ObjectiveOptions):
        """GEM (Li et al. 2025): a variant of maximum likelihood that keeps samples diverse."""

        kind: Literal["gem"]
        beta: float = Field(
            0.7, gt=0, le=1, description="temperature of the sharpened copy q; a lower value penalizes fewer words"
        )
        h: Weighting = Field("linear", description="weights of the words: linear or log_sigmoid")

        def build(self, parts: RunParts) -> Gem:
            return Gem(self)

    def __init__(self, cfg: Gem.Config) -> None:
        self.cfg = cfg

    def __call__(self, learner: CaptionerLike, batch: Batch) -> Loss:
        assert batch.tokens_RT is not None and batch.valid_RT is not None
        settings: dict[str, Any] = {"beta": self.cfg.beta, "h": self.cfg.h}
        references = batch.visual, batch.tokens_RT, batch.valid_RT
        return Loss(loss_of_references(learner, *references, gem_loss, head_loss_of(GemTerm), **settings))
