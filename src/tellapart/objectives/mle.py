"""Maximum likelihood on the references (teacher forcing)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field

from tellapart.errors import UsageError
from tellapart.models import output_layer as head
from tellapart.models.precision import at_least_float32
from tellapart.models.protocols import CaptionerLike
from tellapart.objectives.base import ObjectiveOptions, Supervised, objective
from tellapart.objectives.labels import check_labels, count_valid, flat_positions
from tellapart.objectives.reference_loss import loss_of_references
from tellapart.rewards.run_parts import RunParts
from tellapart.types import Batch, Loss


def mle_loss(
    logits_BTV: torch.Tensor, labels_BT: torch.Tensor, valid_BT: torch.Tensor, *, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Computes the cross-entropy of the references, averaged over valid tokens, in nats (paper 1, eq. 1).

    logits_BTV: raw scores.
    labels_BT: token ids.
    valid_BT: False for padding.
    label_smoothing: the fraction of each label's probability that is spread uniformly over the vocabulary, in [0, 1].

    Raises ValueError if no token is valid.
    """
    check_labels(labels_BT, valid_BT)
    return F.cross_entropy(at_least_float32(logits_BTV[valid_BT]), labels_BT[valid_BT], label_smoothing=label_smoothing)


def mle_head_loss(
    hidden_BTH: torch.Tensor,
    weight_VH: torch.Tensor,
    labels_BT: torch.Tensor,
    valid_BT: torch.Tensor,
    bias_V: torch.Tensor | None = None,
    *,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Computes the value and gradients of `mle_loss` for the logits hidden·weightᵀ + bias, in chunks of tokens.

    Averages over valid tokens, in nats (paper 1, eq. 1). Returns a scalar that does not support double backward.

    hidden_BTH: the input to the output layer.
    weight_VH, bias_V: the parameters of the output layer.
    labels_BT: token ids.
    valid_BT: False for padding.

    Raises ValueError if no token is valid.
    """
    check_labels(labels_BT, valid_BT)
    return head.head_loss(hidden_BTH, weight_VH, bias_V, [mle_term(labels_BT, valid_BT, 1.0, label_smoothing)])


def mle_term(
    labels_BT: torch.Tensor, valid_BT: torch.Tensor, part: float, label_smoothing: float
) -> head.VocabularyTerm:
    """Returns a term of `head_loss` that adds ``part`` times the mean loss over valid tokens."""
    return head.VocabularyTerm(
        flat_positions(valid_BT), labels_BT[valid_BT], part / count_valid(valid_BT), label_smoothing
    )


def mle_of_references(
    learner: CaptionerLike,
    visual: torch.Tensor,
    labels_RT: torch.Tensor,
    valid_RT: torch.Tensor,
    label_smoothing: float = 0.0,
    learned_RT: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes `mle_loss` on references (see `loss_of_references`).

    learned_RT: mask of the valid tokens that contribute to the loss. None: all valid tokens contribute.
    """
    return loss_of_references(
        learner,
        visual,
        labels_RT,
        valid_RT,
        mle_loss,
        mle_head_loss,
        counted_RT=learned_RT,
        label_smoothing=label_smoothing,
    )


class Mle(Supervised[CaptionerLike]):
    """`mle_loss` on the batch's references. If a reference begins with ``prompt``, the loss excludes the prompt."""

    @objective("MLE", help="Cross-entropy on the references (teacher forcing).", direction="lower")
    class Config(ObjectiveOptions):
        """Maximum likelihood on the references.

        ``prompt``: if a reference begins with this prompt, the loss excludes the prompt. The captioner then learns to
        respond to the prompt, and does not generate the prompt itself (data sets provide ``describe=PROMPT``).
        """

        kind: Literal["mle"] = "mle"
        label_smoothing: float = Field(0.0, ge=0, lt=1)
        prompt: str = ""

        def build(self, parts: RunParts) -> Mle:
            if not self.prompt:
                return Mle(self.label_smoothing)
            if not any(text.startswith(self.prompt) for item in parts.train_items for text in item.references):
                raise UsageError(
                    f"objective.prompt is '{self.prompt}', but no training reference begins with it; add a "
                    f"data set with describe={self.prompt}, or remove the prompt"
                )
            (prompt,) = parts.captioner.tokenize([self.prompt])
            return Mle(self.label_smoothing, prompt[:-1])  # drop the end token

    def __init__(self, label_smoothing: float = 0.0, prompt: Sequence[int] = ()) -> None:
        self.label_smoothing, self.prompt = label_smoothing, list(prompt)

    def __call__(self, learner: CaptionerLike, batch: Batch) -> Loss:
        assert batch.tokens_RT is not None and batch.valid_RT is not None
        tokens_RT, valid_RT, learned_RT = batch.tokens_RT, batch.valid_RT, self.learned(batch)
        return Loss(mle_of_references(learner, batch.visual, tokens_RT, valid_RT, self.label_smoothing, learned_RT))

    def learned(self, batch: Batch) -> torch.Tensor:
        """Returns an R×T mask of the tokens that contribute to the loss, without those of a leading prompt."""
        assert batch.tokens_RT is not None
        valid_RT, P = super().learned(batch), len(self.prompt)
        if not 0 < P <= valid_RT.shape[1]:
            return valid_RT
        prompt_P = torch.tensor(self.prompt, device=valid_RT.device)
        learned_RT = valid_RT.clone()
        learned_RT[(batch.tokens_RT[:, :P] == prompt_P).all(1), :P] = False
        return learned_RT
