"""Labels and masks as other people's loops have them: shifted by a helper, and refused where they would mislead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tellapart.objectives import mle_head_loss, mle_loss, shift_labels, smile_head_loss, smile_loss

B, T, V, H = 3, 6, 11, 4
HIDDEN, WEIGHT = torch.randn(B, T, H), torch.randn(V, H)
LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "mle": lambda labels, valid: mle_loss(HIDDEN @ WEIGHT.T, labels, valid),
    "smile": lambda labels, valid: smile_loss(HIDDEN @ WEIGHT.T, labels, valid),
    "mle of the output layer": lambda labels, valid: mle_head_loss(HIDDEN, WEIGHT, labels, valid),
    "smile of the output layer": lambda labels, valid: smile_head_loss(HIDDEN, WEIGHT, labels, valid),
}


@pytest.fixture
def labels() -> torch.Tensor:
    return torch.randint(0, V, (B, T), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", LOSSES)
def test_a_mask_of_numbers_is_refused_and_not_read_as_rows(name: str, labels: torch.Tensor) -> None:
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 2 + [0] * 4])  # as a tokenizer's attention_mask
    assert LOSSES[name](labels, mask.bool()).isfinite()
    for wrong in (mask, mask.float()):
        with pytest.raises(ValueError, match=r"valid_BT has dtype torch\.\w+; expected torch.bool; convert a mask"):
            LOSSES[name](labels, wrong)


@pytest.mark.parametrize("name", LOSSES)
def test_labels_that_leave_tokens_out_by_their_number_are_refused_with_the_helper(
    name: str, labels: torch.Tensor
) -> None:
    labels[:, 0] = -100
    with pytest.raises(ValueError, match=r"negative ids .* labels, valid = shift_labels\(labels\)"):
        LOSSES[name](labels, torch.ones(B, T).bool())
    valid = torch.ones(B, T).bool()
    valid[:, 0] = False  # what is not valid may be anything
    assert LOSSES[name](labels, valid).isfinite()
    with pytest.raises(ValueError, match=r"valid_BT has shape \(3, 5\) but labels_BT has \(3,"):
        LOSSES[name](labels, valid[:, 1:])


def test_shifted_labels_give_the_loss_that_transformers_computes() -> None:
    torch.manual_seed(0)
    model: Any = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=16, n_embd=8, n_layer=1, n_head=2)).eval()
    tokens = torch.randint(0, V, (B, T))
    unshifted = tokens.clone()
    unshifted[:, :2], unshifted[1, 4:] = -100, -100
    output = model(input_ids=tokens, labels=unshifted)
    labels, valid = shift_labels(unshifted)
    assert labels.shape == valid.shape == (B, T - 1) and int(valid.sum()) == 3 * 4 - 2
    assert float(mle_loss(output.logits[:, :-1], labels, valid)) == pytest.approx(float(output.loss), abs=1e-6)
    mixed = smile_loss(output.logits[:, :-1], labels, valid, mle=1.0)
    assert float(mixed) == pytest.approx(float(output.loss), abs=1e-6)
