"""Checks and converts the labels of token losses and the masks of their valid positions."""

from __future__ import annotations

import torch


def flat_positions(chosen_BT: torch.Tensor) -> torch.Tensor:
    """Returns the flat indices (in B·T) of the chosen tokens."""
    return chosen_BT.flatten().nonzero().squeeze(1)


def check_labels(labels_BT: torch.Tensor, valid_BT: torch.Tensor) -> None:
    """Raises ValueError unless the mask is boolean, has the labels' shape and a valid token, and ids are not negative.

    An integer mask would silently index rows instead of masking.
    """
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
