"""Maximum likelihood on the references (teacher forcing)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field

from tellapart.errors import UsageError
from tellapart.models import output_layer as head
from tellapart.models.protocols import CaptionerLike
from tellapart.objectives.base import OBJECTIVES, ObjectiveEntry, ObjectiveOptions, Stateless
from tellapart.rewards.base import RunParts
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


def mle_of_references(
    learner: CaptionerLike,
    visual: torch.Tensor,
    labels_RT: torch.Tensor,
    valid_RT: torch.Tensor,
    label_smoothing: float = 0.0,
    learned_RT: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes `mle_loss` on references, from the captioner's output layer or, if it has none, from its logits.

    learned_RT: mask of the valid tokens that contribute to the loss; all other tokens serve only as context. None: all
        valid tokens contribute.
    """
    counted_RT = valid_RT if learned_RT is None else learned_RT
    if (head := learner.head()) is None:
        logits_RTV = learner.logits(visual, labels_RT, valid_RT)
        return mle_loss(logits_RTV, labels_RT, counted_RT, label_smoothing=label_smoothing)
    weight_VH, bias_V = head
    hidden_RTH = learner.hidden(visual, labels_RT, valid_RT)
    return mle_head_loss(hidden_RTH, weight_VH, labels_RT, counted_RT, bias_V, label_smoothing=label_smoothing)


class Mle(Stateless[CaptionerLike]):
    """`mle_loss` on the batch's references. If a reference begins with ``prompt``, the loss excludes the prompt."""

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


OBJECTIVES.register(
    ObjectiveEntry(
        name="mle",
        factory=Mle.Config.build,
        help="Cross-entropy on the references (teacher forcing).",
        options=Mle.Config,
        label="MLE",
        direction="lower",
    )
)
