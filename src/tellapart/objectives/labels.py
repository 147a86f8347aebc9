"""The labels of token losses and the masks of their valid positions; the loss of a captioner on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tellapart.models import output_layer as head
from tellapart.models.protocols import CaptionerLike


def flat_positions(chosen_BT: torch.Tensor) -> torch.Tensor:
    """Returns the flat indices (in B·T) of the chosen tokens."""
    return chosen_BT.flatten().nonzero().squeeze(1)


def check_labels(labels_BT: torch.Tensor, valid_BT: torch.Tensor) -> None:
    """Raises ValueError if the mask is not boolean: integers would silently index rows instead of masking."""
    if valid_BT.dtype != torch.bool:
        raise ValueError(
            f"valid_BT has dtype {valid_BT.dtype}; expected torch.bool; convert a mask of 0 and 1 with valid.bool()"
        )
    if valid_BT.shape != labels_BT.shape:
        raise ValueError(
            f"valid_BT has shape {tuple(valid_BT.shape)} but labels_BT has {tuple(labels_BT.shape)}; "
            "expected equal shapes"
        )
    count_valid(valid_BT)
    if int(labels_BT.masked_fill(~valid_BT, 0).min()) < 0:
        raise ValueError(
            "labels_BT contains negative ids at valid positions; for transformers' labels, which mark ignored "
            "positions with -100, use labels, valid = shift_labels(labels)"
        )


def shift_labels(labels_BT: torch.Tensor, ignore_index: int = -100) -> tuple[torch.Tensor, torch.Tensor]:
    """Converts transformers' ``labels`` to targets for the logits ``logits[:, :-1]`` of a causal model.

    In transformers, labels are aligned with the tokens, ``ignore_index`` excludes positions from the loss, and the
    output at each position predicts the next token. Returns labels and a bool mask, both B×(T−1), for `mle_loss`,
    `smile_loss` and similar losses:

        labels, valid = shift_labels(batch["labels"])
        loss = smile_loss(model(**batch).logits[:, :-1], labels, valid)
    """
    shifted_BT = labels_BT[:, 1:]
    valid_BT = shifted_BT != ignore_index
    return shifted_BT.masked_fill(~valid_BT, 0), valid_BT


def count_valid(valid_BT: torch.Tensor) -> int:
    """Counts the valid tokens. Raises ValueError if no token is valid."""
    if not (count := int(valid_BT.sum())):
        raise ValueError("The batch has no valid token; expected at least one caption with an end token")
    return count


def at_least_float32(logits: torch.Tensor) -> torch.Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


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
