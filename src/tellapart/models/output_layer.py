"""Cross-entropy losses on an output layer, without ever materializing all logits (B×T×V) at once.

A loss is a sum of terms. A `VocabularyTerm` scores tokens against the whole vocabulary, in chunks. A `SubsetTerm`
scores captions against a subset of words, which multiplies only the rows of these words. The gradient is computed
together with the value, while the logits exist. All terms accumulate their gradients in one buffer that is as large as
the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.autograd.function import once_differentiable

from tellapart.models.onednn import linear

CHUNK_SCORES = 2**23  # maximum number of logits in memory (32 MB)
FEW_TOKENS = 256  # with fewer tokens, casting the whole layer to autocast's precision costs more than it saves


class LossTerm(Protocol):
    """One term of the loss. ``add`` returns its value and adds its gradients to the layer's gradients, if required."""

    def add(self, layer: Layer) -> torch.Tensor: ...


def head_loss(
    hidden_BTH: torch.Tensor, weight_VH: torch.Tensor, bias_V: torch.Tensor | None, terms: Sequence[LossTerm]
) -> torch.Tensor:
    """Computes the sum of ``terms``, a scalar in float32 (or 64) that does not support double backward.

    Each term defines its own tokens, labels and weights. This is an implementation technique for `mle_head_loss` and
    `smile_head_loss`, which does not come from a paper. Under autocast, a `VocabularyTerm` with many tokens uses
    autocast's precision; everything else uses the weights' precision.

    hidden_BTH: the input to the output layer.
    weight_VH, bias_V: the parameters of the output layer. bias_V may be None.
    """
    device = hidden_BTH.device.type
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    inputs = (hidden_BTH, weight_VH, bias_V, tuple(terms), autocast, torch.is_grad_enabled())
    loss: torch.Tensor = HeadLoss.apply(*inputs)  # type: ignore[no-untyped-call]
    return loss


class HeadLoss(torch.autograd.Function):
    """`head_loss` for autograd.

    The first backward pass returns the gradient computed in the forward pass. A second backward pass (with
    ``retain_graph``) recomputes the gradient, because the caller owns the first result.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_BTH: torch.Tensor,
        weight_VH: torch.Tensor,
        bias_V: torch.Tensor | None,
        terms: tuple[LossTerm, ...],
        autocast: torch.dtype | None,
        learns: bool,
    ) -> torch.Tensor:
        ctx.save_for_backward(hidden_BTH, weight_VH, bias_V)
        ctx.terms, ctx.autocast = terms, autocast
        wanted = tuple(learns and needed for needed in ctx.needs_input_grad[:3])
        ctx.layer = layer = Layer(hidden_BTH, weight_VH, bias_V, wanted, autocast)
        return layer.loss(terms)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        layer, ctx.layer = ctx.layer, None
        if layer is None:
            hidden_BTH, weight_VH, bias_V = ctx.saved_tensors
            layer = Layer(hidden_BTH, weight_VH, bias_V, ctx.needs_input_grad[:3], ctx.autocast)
            layer.loss(ctx.terms)
        return *layer.gradients(grad), None, None, None


class Layer:
    """An output layer and its input hidden states, with the accumulated gradients of both."""

    def __init__(
        self,
        hidden_BTH: torch.Tensor,
        weight_VH: torch.Tensor,
        bias_V: torch.Tensor | None,
        wanted: Sequence[bool],
        autocast: torch.dtype | None,
    ) -> None:
        self.hidden_BTH, self.weight_VH, self.bias_V, self.autocast = hidden_BTH, weight_VH, bias_V, autocast
        self.wide = torch.promote_types(weight_VH.dtype, torch.float32)  # 16-bit sums would lose small terms
        self.learns, (wants_hidden, self.wants_weight, wants_bias) = any(wanted), wanted
        # zeros_like would keep a transposed layout, which cannot be viewed as B·T rows.
        self.to_hidden_BTH = hidden_BTH.new_zeros(hidden_BTH.shape, dtype=self.wide) if wants_hidden else None
        self.to_weight_VH: torch.Tensor | None = None  # allocated by the first term that adds to it
        self.to_bias_V = torch.zeros_like(bias_V, dtype=self.wide) if wants_bias and bias_V is not None else None

    def loss(self, terms: Sequence[LossTerm]) -> torch.Tensor:
        """Returns the sum of the terms, and accumulates its gradients."""
        with torch.autocast(self.hidden_BTH.device.type, enabled=False):
            return torch.stack([term.add(self) for term in terms]).sum()

    def products_of(self, tokens: int) -> torch.dtype:
        """Returns the dtype for multiplying ``tokens`` tokens by the whole layer."""
        return self.weight_VH.dtype if self.autocast is None or tokens < FEW_TOKENS else self.autocast

    def weight_gradient(self) -> torch.Tensor:
        """Returns the weights' gradient so far, after allocating it if no term has added to it."""
        if self.to_weight_VH is None:
            self.to_weight_VH = torch.zeros_like(self.weight_VH, dtype=self.wide)
        return self.to_weight_VH

    def gradients(self, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Returns the required gradients of hidden states, weights and bias, multiplied by ``grad``."""
        to_weight_VH = self.weight_gradient() if self.wants_weight else None
        sums = (self.to_hidden_BTH, self.hidden_BTH), (to_weight_VH, self.weight_VH), (self.to_bias_V, self.bias_V)
        unscaled = grad.device.type == "cpu" and float(grad) == 1  # on other devices, reading grad would synchronize
        return tuple(
            None if sum_ is None else (sum_ if unscaled else sum_.mul_(grad)).to(like.dtype)  # type: ignore[union-attr]
            for sum_, like in sums
        )


@dataclass(frozen=True)
class VocabularyTerm:
    """Cross-entropy of tokens over the whole vocabulary, with label smoothing, multiplied by ``share``.

    place_N: indices of the tokens in the B·T hidden states.
    label_N: the labels of these tokens.
    out_NK: words to exclude from each token's vocabulary (duplicates are harmless). A token's own label is never
        excluded. Cannot be combined with label smoothing.
    """

    place_N: torch.Tensor
    label_N: torch.Tensor
    share: float
    label_smoothing: float = 0.0
    out_NK: torch.Tensor | None = None

    def add(self, layer: Layer) -> torch.Tensor:
        dtype = layer.products_of(len(self.place_N))
        hidden_NH = layer.hidden_BTH.flatten(0, 1)[self.place_N].to(dtype)
        weight_VH = layer.weight_VH.to(dtype)
        value = torch.zeros((), dtype=layer.wide, device=hidden_NH.device)
        step = max(1, CHUNK_SCORES // len(weight_VH))
        for start in range(0, len(hidden_NH), step):
            n = slice(start, start + step)
            scores_nV = linear(hidden_NH[n], weight_VH).to(layer.wide)
            if layer.bias_V is not None:
                scores_nV += layer.bias_V
            loss, grad_nV = self.cross_entropy(scores_nV, n, layer.learns)
            value += loss
            if layer.learns:
                self.push_back(layer, grad_nV, hidden_NH[n], weight_VH, n)
        return value

    def cross_entropy(self, scores_nV: torch.Tensor, n: slice, learns: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes the loss for a chunk of tokens, and its gradient, which overwrites the logits."""
        label_n1, smooth, V = self.label_N[n, None], self.label_smoothing, scores_nV.shape[1]
        right_n1 = scores_nV.gather(1, label_n1)
        if self.out_NK is not None:
            scores_nV.scatter_(1, self.out_NK[n], -torch.inf).scatter_(1, label_n1, right_n1)
        mean_n1 = scores_nV.mean(1, keepdim=True) if smooth else right_n1
        top_n1 = scores_nV.amax(1, keepdim=True)
        mass_n1 = scores_nV.sub_(top_n1).exp_().sum(1, keepdim=True)
        loss = self.share * (top_n1 + mass_n1.log() - (1 - smooth) * right_n1 - smooth * mean_n1).sum()
        if learns:
            scores_nV *= self.share / mass_n1
            scores_nV.scatter_add_(1, label_n1, torch.full_like(right_n1, -self.share * (1 - smooth)))
            if smooth:
                scores_nV -= self.share * smooth / V
        return loss, scores_nV

    def push_back(
        self, layer: Layer, grad_nV: torch.Tensor, hidden_nH: torch.Tensor, weight_VH: torch.Tensor, n: slice
    ) -> None:
        """Backpropagates the gradient of these logits into the layer's gradients."""
        if layer.to_bias_V is not None:
            layer.to_bias_V += grad_nV.sum(0)
        grad_nV = grad_nV.to(hidden_nH.dtype)
        if layer.to_hidden_BTH is not None:
            back_nH = linear(grad_nV, weight_VH.T).to(layer.wide)
            layer.to_hidden_BTH.flatten(0, 1).index_add_(0, self.place_N[n], back_nH)
        if not layer.wants_weight:
            return
        if layer.to_weight_VH is None:
            layer.to_weight_VH = torch.mm(grad_nV.T, hidden_nH).to(layer.wide)
        elif grad_nV.dtype == layer.wide:
            layer.to_weight_VH.addmm_(grad_nV.T, hidden_nH)  # without another matrix of that size
        else:
            layer.to_weight_VH += torch.mm(grad_nV.T, hidden_nH)


@dataclass(frozen=True)
class SubsetTerm:
    """Cross-entropy of captions' tokens over K words per caption, multiplied by ``share``.

    ids_BK: the words.
    keep_BTK: mask of the words in the softmax. If T = 1, the mask is the same for all tokens.
    slot_BT: index of each token's label among the K words. The mask must keep this word.
    counted_BT: mask of the tokens that contribute to the loss.
    """

    ids_BK: torch.Tensor
    keep_BTK: torch.Tensor
    slot_BT: torch.Tensor
    counted_BT: torch.Tensor
    share: float

    def add(self, layer: Layer) -> torch.Tensor:
        hidden_BTH = layer.hidden_BTH.to(layer.wide)
        rows_BKH = layer.weight_VH[self.ids_BK].to(layer.wide)
        scores_BTK = torch.bmm(hidden_BTH, rows_BKH.transpose(1, 2))
        if layer.bias_V is not None:
            scores_BTK += layer.bias_V[self.ids_BK][:, None, :]
        # Tokens that do not count keep all K words, so that no row is fully masked.
        scores_BTK.masked_fill_(~self.keep_BTK & self.counted_BT[..., None], -torch.inf)
        log_p_BTK = scores_BTK.log_softmax(-1)
        right_BT1 = log_p_BTK.gather(2, self.slot_BT[..., None])
        loss = -self.share * right_BT1[self.counted_BT].sum()  # eq. 3 of paper 1
        if layer.learns:
            share_BT1 = self.share * self.counted_BT[..., None].to(layer.wide)
            grad_BTK = log_p_BTK.exp_().mul_(share_BT1).scatter_add_(2, self.slot_BT[..., None], -share_BT1)
            ids_N = self.ids_BK.flatten()
            if layer.to_bias_V is not None:
                layer.to_bias_V.index_add_(0, ids_N, grad_BTK.sum(1).flatten())
            if layer.to_hidden_BTH is not None:
                layer.to_hidden_BTH.baddbmm_(grad_BTK, rows_BKH)
            if layer.wants_weight:
                to_rows_NH = torch.bmm(grad_BTK.transpose(1, 2), hidden_BTH).flatten(0, 1)
                layer.weight_gradient().index_add_(0, ids_N, to_rows_NH)
        return loss
