"""Computes a captioner's loss on references, from its output layer or its logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tellapart.models import output_layer as head
from tellapart.models.protocols import CaptionerLike
from tellapart.objectives.labels import count_valid, flat_positions


def head_loss_of(term: type[head.VocabularyTerm]) -> Callable[..., torch.Tensor]:
    """Returns a function that computes the mean of a term over valid tokens from the output layer, in chunks of tokens.

    It takes the arguments of `mle_head_loss` and the term's settings.
    """

    def loss(
        hidden_BTH: torch.Tensor,
        weight_VH: torch.Tensor,
        labels_BT: torch.Tensor,
        valid_BT: torch.Tensor,
        bias_V: torch.Tensor | None,
        **settings: Any,
    ) -> torch.Tensor:
        share = 1 / count_valid(valid_BT)
        return head.head_loss(
            hidden_BTH, weight_VH, bias_V, [term(flat_positions(valid_BT), labels_BT[valid_BT], share, **settings)]
        )

    return loss


def loss_of_references(
    learner: CaptionerLike,
    visual: torch.Tensor,
    labels_RT: torch.Tensor,
    valid_RT: torch.Tensor,
    loss: Callable[..., torch.Tensor],
    head_loss: Callable[..., torch.Tensor],
    *,
    input_RT: torch.Tensor | None = None,
    counted_RT: torch.Tensor | None = None,
    **settings: Any,
) -> torch.Tensor:
    """Computes a loss on references: ``head_loss`` from the captioner's output layer or, if it has none, ``loss`` from
    its logits.

    input_RT: the captioner's input, if it differs from the labels.
    counted_RT: mask of the valid tokens that contribute to the loss; all other tokens serve only as context. None: all
        valid tokens contribute.
    """
    input_RT = labels_RT if input_RT is None else input_RT
    targets = labels_RT, valid_RT if counted_RT is None else counted_RT
    if (layer := learner.head()) is None:
        return loss(learner.logits(visual, input_RT, valid_RT), *targets, **settings)
    weight_VH, bias_V = layer
    return head_loss(learner.hidden(visual, input_RT, valid_RT), weight_VH, *targets, bias_V, **settings)
