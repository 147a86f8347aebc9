"""SMILE: maximum likelihood restricted to the words in each caption, which does not penalize richer words.

Yue et al. 2023, "Learning Descriptive Image Captioning via Semipermeable Maximum Likelihood Estimation" (paper 1).
`smile_loss` implements Algorithm 1 on logits. `smile_head_loss` computes the same value and gradient from the output
layer, multiplying only the rows that a caption needs. Neither function involves pictures, so they can train any causal
language model, although the paper found no clear gain for text-only models (appendix B, Table 7):

    hidden = model.base_model(input_ids).last_hidden_state[:, :-1]  # text model; the labels are the next tokens
    head = model.get_output_embeddings()
    smile_head_loss(hidden, head.weight, input_ids[:, 1:], is_answer[:, 1:], head.bias).backward()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator

from tellapart.errors import UsageError, nearest
from tellapart.models import output_layer as head
from tellapart.models.precision import at_least_float32
from tellapart.models.protocols import CaptionerLike, Tokenizer
from tellapart.objectives.base import ObjectiveOptions, Supervised, objective
from tellapart.objectives.labels import check_labels, count_valid, flat_positions
from tellapart.objectives.mle import mle_loss, mle_term
from tellapart.objectives.reference_loss import loss_of_references
from tellapart.rewards.run_parts import RunParts
from tellapart.types import Batch, Loss

Subset = Literal["own", "random", "reverse"]
First = Literal["mle", "shift", "none"]


def smile_loss(
    logits_BTV: torch.Tensor,
    labels_BT: torch.Tensor,
    valid_BT: torch.Tensor,
    *,
    subset: Subset = "own",
    first: First = "mle",
    random_size: int = 10,
    shift_V: torch.Tensor | None = None,
    mle: float = 0.0,
    label_smoothing: float = 0.0,
    generator: torch.Generator | None = None,
    uniform_BK: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes SMILE (paper 1, Algorithm 1; eq. 2-3), mixed with MLE (eq. 4), averaged over valid tokens, in nats.

    logits_BTV: raw scores.
    labels_BT: token ids including the end token.
    valid_BT: False for padding and for a prompt.
    subset: ``own``: the words in the caption; ``random``: ``random_size`` distinct words drawn per caption, plus the
        label; ``reverse``: all words except those in the caption, plus the label (section 3.4).
    first: handling of a caption's first valid token (section 3.3): ``mle`` uses the whole vocabulary; ``shift`` uses
        the label ``shift_V[label]``, another form of the word; ``none`` treats it like all other tokens.
    mle: λ; 0.01 means 0.01·MLE + 0.99·SMILE.
    label_smoothing: label smoothing of the MLE term. It does not affect SMILE.
    uniform_BK: numbers in [0, 1) that determine the random subsets; None: draw them from ``generator``.

    Raises ValueError if no token is valid, if a random subset exceeds the vocabulary, or if λ is outside [0, 1].
    """
    check_arguments(labels_BT, valid_BT, logits_BTV.shape[-1], subset, first, random_size, shift_V, mle)
    target_BT, first_BT = first_token(labels_BT, valid_BT, first, shift_V)
    V = logits_BTV.shape[-1]
    drawn_BK = random_words(labels_BT, V, random_size, generator, uniform_BK) if subset == "random" else None
    keep_BTV = subset_mask(target_BT, valid_BT, V, subset, drawn_BK)
    keep_BTV = keep_BTV | first_BT[..., None]
    logits_BTV = at_least_float32(logits_BTV)
    chosen_BTV = logits_BTV.masked_fill(~keep_BTV, -torch.inf)
    smile = F.cross_entropy(chosen_BTV[valid_BT], target_BT[valid_BT])  # eq. 3
    if not mle:
        return smile
    # eq. 4
    return mle * mle_loss(logits_BTV, labels_BT, valid_BT, label_smoothing=label_smoothing) + (1 - mle) * smile


def smile_head_loss(
    hidden_BTH: torch.Tensor,
    weight_VH: torch.Tensor,
    labels_BT: torch.Tensor,
    valid_BT: torch.Tensor,
    bias_V: torch.Tensor | None = None,
    *,
    subset: Subset = "own",
    first: First = "mle",
    random_size: int = 10,
    shift_V: torch.Tensor | None = None,
    mle: float = 0.0,
    label_smoothing: float = 0.0,
    generator: torch.Generator | None = None,
    uniform_BK: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes the value and gradients of `smile_loss` for the logits hidden·weightᵀ + bias, without materializing the
    B×T×V logits.

    Implements paper 1, Algorithm 1, eq. 2-4. Returns a scalar in nats that does not support double backward. Multiplies
    only the rows of each caption's subset and, if ``first`` is ``mle``, the whole layer for the first token.
    ``reverse`` and λ > 0 need the whole vocabulary for each token and are computed in chunks of tokens.

    hidden_BTH: the input to the output layer.
    weight_VH, bias_V: the parameters of the output layer.

    All other arguments, and the errors, are the same as for `smile_loss`.
    """
    check_arguments(labels_BT, valid_BT, len(weight_VH), subset, first, random_size, shift_V, mle)
    target_BT, first_BT = first_token(labels_BT, valid_BT, first, shift_V)
    terms: list[head.LossTerm] = [mle_term(labels_BT, valid_BT, mle, label_smoothing)] if mle else []
    share, others_BT = (1 - mle) / count_valid(valid_BT), valid_BT & ~first_BT
    if first == "mle":
        terms.append(head.VocabularyTerm(flat_positions(first_BT), target_BT[first_BT], share))
    if subset == "reverse":
        terms.append(reverse_term(target_BT, valid_BT, others_BT, share))
    elif subset == "own":
        slot_BT, keep_BT = caption_words(target_BT, valid_BT)
        terms.append(head.SubsetTerm(target_BT, keep_BT[:, None], slot_BT, others_BT, share))
    else:
        drawn_BK = random_words(labels_BT, len(weight_VH), random_size, generator, uniform_BK)
        terms.append(random_term(target_BT, drawn_BK, others_BT, share))
    return head.head_loss(hidden_BTH, weight_VH, bias_V, terms)


def check_arguments(
    labels_BT: torch.Tensor,
    valid_BT: torch.Tensor,
    V: int,
    subset: str,
    first: str,
    size: int,
    shift_V: torch.Tensor | None,
    mle: float,
) -> None:
    """Validates the arguments and raises ValueError if they are inconsistent."""
    check_labels(labels_BT, valid_BT)
    if subset not in ("own", "random", "reverse") or first not in ("mle", "shift", "none"):
        raise ValueError(
            "Expected subset to be own, random or reverse and first to be mle, shift or none; got "
            f"subset '{subset}' and first '{first}'"
        )
    if subset == "random" and not 0 < size <= V:
        raise ValueError(f"random_size is {size}; expected at least 1 and at most {V}, the size of the vocabulary")
    if (first == "shift") != (shift_V is not None):
        raise ValueError("shift_V must be given if and only if first = 'shift'")
    if not 0 <= mle <= 1:
        raise ValueError(f"mle is {mle}; expected a weight in [0, 1]")


def first_token(
    labels_BT: torch.Tensor, valid_BT: torch.Tensor, first: str, shift_V: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns target_BT (with valid token ids even for padding), and a mask of the tokens that use the whole
    vocabulary.
    """
    target_BT = labels_BT.masked_fill(~valid_BT, 0)
    first_BT = valid_BT & (valid_BT.cumsum(1) == 1)
    if shift_V is not None:
        target_BT = torch.where(first_BT, shift_V.to(target_BT.device)[target_BT], target_BT)
    return target_BT, first_BT & (first == "mle")


def subset_mask(
    target_BT: torch.Tensor, valid_BT: torch.Tensor, V: int, subset: str, drawn_BK: torch.Tensor | None
) -> torch.Tensor:
    """Computes keep_BTV (or B×1×V), a mask of the subset in Algorithm 1. Padding never adds its id to a subset."""
    B, device = len(target_BT), target_BT.device
    if drawn_BK is not None:
        keep_B1V = torch.zeros(B, 1, V, dtype=torch.bool, device=device).scatter_(2, drawn_BK[:, None], True)
    else:  # count valid tokens, because padding may have the same id as a word in the caption
        counts_BV = torch.zeros(B, V, dtype=torch.long, device=device).scatter_add_(1, target_BT, valid_BT.long())
        if subset == "own":
            return counts_BV[:, None] > 0
        keep_B1V = counts_BV[:, None] == 0
    return keep_B1V.repeat(1, target_BT.shape[1], 1).scatter_(2, target_BT[..., None], True)


def caption_words(target_BT: torch.Tensor, valid_BT: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns slot_BT, the position where each token's word first occurs in its caption, and keep_BT, a mask of these
    first occurrences.
    """
    same_BTT = (target_BT[:, :, None] == target_BT[:, None, :]) & valid_BT[:, None, :]
    slot_BT = same_BTT.int().argmax(2)
    return slot_BT, valid_BT & (slot_BT == torch.arange(target_BT.shape[1], device=target_BT.device))


def random_words(
    labels_BT: torch.Tensor, V: int, size: int, generator: torch.Generator | None, uniform_BK: torch.Tensor | None
) -> torch.Tensor:
    """Draws drawn_BK, a random subset for each caption, from ``uniform_BK``, ``generator`` or the default generator."""
    if uniform_BK is None:
        place = generator.device if generator is not None else torch.device("cpu")
        uniform_BK = torch.rand(len(labels_BT), size, generator=generator, device=place, dtype=torch.float64)
    return draw_words(uniform_BK, V).to(labels_BT.device)


def draw_words(uniform_BK: torch.Tensor, V: int) -> torch.Tensor:
    """For each of B captions, draws K distinct words out of V, B×K. All sets are equally likely (Floyd's algorithm)."""
    drawn_BK = torch.empty(uniform_BK.shape, dtype=torch.long, device=uniform_BK.device)
    for k, top in enumerate(range(V - uniform_BK.shape[1], V)):
        word_B = (uniform_BK[:, k] * (top + 1)).long()
        drawn_BK[:, k] = torch.where((drawn_BK[:, :k] == word_B[:, None]).any(1), top, word_B)
    return drawn_BK


def random_term(
    target_BT: torch.Tensor, drawn_BK: torch.Tensor, counted_BT: torch.Tensor, share: float
) -> head.SubsetTerm:
    """Returns the loss over each caption's drawn words and the label. The label is never counted twice."""
    (B, T), K = target_BT.shape, drawn_BK.shape[1]
    place_T = torch.arange(T, device=target_BT.device)
    label_BTT = torch.eye(T, dtype=torch.bool, device=target_BT.device).expand(B, T, T)
    keep_BTK = torch.cat([label_BTT, drawn_BK[:, None].expand(B, T, K) != target_BT[..., None]], dim=2)
    return head.SubsetTerm(torch.cat([target_BT, drawn_BK], dim=1), keep_BTK, place_T.expand(B, T), counted_BT, share)


def reverse_term(
    target_BT: torch.Tensor, valid_BT: torch.Tensor, counted_BT: torch.Tensor, share: float
) -> head.VocabularyTerm:
    """Returns the loss over the label and all words that are not in the caption."""
    label_N, caption_N = target_BT[counted_BT], counted_BT.nonzero()[:, 0]
    out_NT = torch.where(valid_BT[caption_N], target_BT[caption_N], label_N[:, None])
    return head.VocabularyTerm(flat_positions(counted_BT), label_N, share, out_NK=out_NT)


class Smile(Supervised[CaptionerLike]):
    """`smile_loss` on the batch's references. Seed, step, item and caption determine the random subsets."""

    @objective(
        "SMILE",
        help="Maximum likelihood restricted to the words in each reference (paper 1).",
        direction="lower",
        loss_selects=False,
    )
    class Config(ObjectiveOptions):
        """SMILE with the defaults of paper 1. ``mle_weight`` is λ in eq. 4, which is 0.01 in the paper's best row."""

        kind: Literal["smile"]
        subset: Literal["own", "random", "reverse"] = "own"
        first_token: Literal["mle", "shift", "none"] = Field("mle")
        random_size: int = Field(
            10, ge=1, description="number of words to draw for each caption, in addition to the label"
        )
        shift: tuple[tuple[str, str], ...] = Field(
            (), description="pairs of a token and its replacement, for tokenizers that have only one form of each word"
        )
        shift_as: Literal["label", "program"] = Field(
            "label",
            description="label: only the label is replaced; program: the decoder's input is replaced too, as in the "
            "authors' code, and a word without another form becomes the unknown token",
        )
        mle_weight: float = Field(0.0, ge=0, le=1)
        label_smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing of the MLE term; BLIP uses 0.1")

        @model_validator(mode="after")
        def has_an_effect(self) -> Smile.Config:
            if self.label_smoothing and not self.mle_weight:
                raise ValueError(
                    "label_smoothing applies to the MLE term, but mle_weight is 0; set, for example, "
                    "mle_weight = 0.01, or remove label_smoothing"
                )
            if self.random_size != 10 and self.subset != "random":
                raise ValueError(
                    f"random_size requires subset = 'random', but subset is '{self.subset}'; remove random_size"
                )
            if self.shift and self.first_token != "shift":
                raise ValueError(
                    f"shift requires first_token = 'shift', but first_token is '{self.first_token}'; remove shift"
                )
            if self.shift_as != "label" and self.first_token != "shift":
                raise ValueError(
                    f"shift_as requires first_token = 'shift', but first_token is '{self.first_token}'; remove shift_as"
                )
            return self

        def build(self, parts: RunParts) -> Smile:
            """Builds SMILE for this captioner. Raises `UsageError` if its vocabulary does not support the options."""
            captioner = parts.captioner
            V = len(captioner.tokenizer) if (head := captioner.head()) is None else len(head[0])
            if self.subset == "random" and self.random_size > V:
                raise UsageError(
                    f"objective.random_size is {self.random_size}, but the vocabulary of {captioner.name} has "
                    f"only {V} words; lower random_size (the paper uses 10)"
                )
            if self.first_token != "shift":
                return Smile(self)
            unknown = self.shift_as == "program"
            return Smile(self, alternative_forms(captioner.tokenizer, V, self.shift, unknown=unknown))

    def __init__(self, cfg: Smile.Config, shift_V: torch.Tensor | None = None) -> None:
        self.cfg, self.shift_V = cfg, shift_V

    def __call__(self, learner: CaptionerLike, batch: Batch) -> Loss:
        assert batch.tokens_RT is not None and batch.valid_RT is not None
        labels_RT, valid_RT, cfg = batch.tokens_RT, batch.valid_RT, self.cfg
        settings: dict[str, Any] = {
            "subset": cfg.subset,
            "first": cfg.first_token,
            "random_size": cfg.random_size,
            "shift_V": self.shift_V,
            "mle": cfg.mle_weight,
            "label_smoothing": cfg.label_smoothing,
        }
        if cfg.subset == "random" and (seeds := batch.seeds) is not None:
            settings["uniform_BK"] = seeds.uniform("subset", cfg.random_size, len(labels_RT) // len(seeds))
        if cfg.shift_as == "program":
            settings["input_RT"], _ = first_token(labels_RT, valid_RT, cfg.first_token, self.shift_V)
        references = batch.visual, labels_RT, valid_RT
        return Loss(loss_of_references(learner, *references, smile_loss, smile_head_loss, **settings))


# First-token shifting replaces the word at the start of a caption with another form of it (section 3.3).
CONTINUES, STARTS = "##", ("Ġ", "▁")  # tokenizers' marks for the continuation and the start of a word


def alternative_forms(
    tokenizer: Tokenizer, V: int, pairs: Sequence[tuple[str, str]] = (), *, unknown: bool = False
) -> torch.Tensor:
    """Returns shift_V: for each token, the id of its other form (paper 1, section 3.3).

    ``pairs`` lists tokens and their replacements. By default, these are the tokenizer's own two forms of a word
    (``a`` and ``##a``, ``a`` and ``Ġa``). A token without another form is kept. If ``unknown`` is set, it becomes the
    unknown token instead, unless it is a special token. Raises `UsageError` if no token has another form, or if a token
    in ``pairs`` does not exist.
    """
    ids: dict[str, int] = tokenizer.get_vocab()
    shift_V = torch.arange(V)
    if unknown:
        if tokenizer.unk_token_id is None:
            raise UsageError(
                "objective.shift_as = 'program' requires an unknown token, which this tokenizer lacks; remove shift_as"
            )
        shift_V.fill_(tokenizer.unk_token_id)[tokenizer.all_special_ids] = torch.tensor(tokenizer.all_special_ids)
    for token, stand_in in pairs or [(token, form) for token in ids if (form := alternative_form(token, ids))]:
        for name in (token, stand_in):
            if name not in ids:
                raise UsageError(f"objective.shift: the tokenizer has no token '{name}'{nearest(name, ids)}")
        shift_V[ids[token]] = ids[stand_in]
    if not unknown and torch.equal(shift_V, torch.arange(V)):
        raise UsageError(
            "objective.first_token = 'shift' requires two forms of each word, but this tokenizer has only "
            "one; name a replacement token that rarely starts a caption, for example --set "
            '\'objective.shift=[["a", "<unk>"]]\''
        )
    return shift_V


def alternative_form(token: str, ids: dict[str, int]) -> str | None:
    """Returns another form of the token that is in the vocabulary, or None if there is no such form.

    The two forms differ only in the mark for the continuation or start of a word.
    """
    candidates = [CONTINUES + token, *(token[1:] for mark in STARTS if token.startswith(mark))]
    candidates += [mark + token for mark in STARTS]
    return next((form for form in candidates if form in ids), None)
