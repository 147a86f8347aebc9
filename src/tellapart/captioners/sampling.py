"""Greedy decoding and sampling."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tellapart.captioners.decoder_state import Decoder, DecoderState
from tellapart.models.decoding import Decoding


def suppress(score_NV: torch.Tensor, tokens: torch.Tensor | None) -> torch.Tensor:
    """Sets the scores of ``tokens`` to -inf so that they are never generated."""
    return score_NV if tokens is None else score_NV.index_fill(-1, tokens, -torch.inf)


def next_token(logits_RV: torch.Tensor, decoding: Decoding, uniform_R: torch.Tensor | None) -> torch.Tensor:
    """Chooses the next token of each row: the likeliest token or, with ``uniform_R``, a token drawn by inverse
    transform sampling.

    Each row uses one random number, so its token does not depend on other rows.
    """
    if uniform_R is None:
        return logits_RV.argmax(-1)
    sums_RV = (logits_RV.float() / decoding.temperature).softmax(-1).cumsum(-1, dtype=uniform_R.dtype)
    below_RV = sums_RV <= uniform_R[:, None] * sums_RV[:, -1:]
    return below_RV.sum(-1).clamp(max=sums_RV.shape[-1] - 1)


class SampleSearch:
    """Generates one caption for each of R = B·samples rows, greedily or by sampling with ``uniform_RT``.

    ``running_N``: True for rows in the batch that have not stopped yet. Tokens after a row's first stop token are
    undefined.
    """

    def __init__(
        self,
        captioner: Decoder,
        state: DecoderState,
        logits_NV: torch.Tensor,
        decoding: Decoding,
        uniform_RT: torch.Tensor | None,
    ) -> None:
        self.captioner, self.state, self.logits_NV, self.decoding = captioner, state, logits_NV, decoding
        self.uniform_RT, device = uniform_RT, logits_NV.device
        self.row_N = torch.arange(len(logits_NV), device=device)
        self.stop_V = token_table(captioner.stop_tokens, logits_NV)
        self.suppressed = token_ids(captioner.suppressed_tokens, device)
        self.tokens_RT = self.row_N.new_full((len(logits_NV), decoding.max_tokens), captioner.stop_tokens[0])
        self.token_N = self.row_N
        self.running_N = torch.ones_like(self.row_N, dtype=torch.bool)

    def choose(self, place: int) -> None:
        """Chooses the tokens at position ``place``."""
        logits_NV = suppress(self.logits_NV, self.suppressed)
        uniform_N = None if self.uniform_RT is None else self.uniform_RT[self.row_N, place]
        self.token_N = next_token(logits_NV, self.decoding, uniform_N)
        self.tokens_RT[self.row_N, place] = self.token_N
        self.running_N = self.running_N & ~self.stop_V[self.token_N]

    def keep(self, kept_N: torch.Tensor) -> None:
        """Keeps only these rows in the batch."""
        self.state, self.row_N = self.state.select(kept_N), self.row_N[kept_N]
        self.token_N, self.running_N = self.token_N[kept_N], self.running_N[kept_N]

    def decode(self, place: int) -> None:
        """Computes the logits that follow the tokens at ``place``."""
        hidden_N1H = self.captioner.step(self.state, self.token_N[:, None])
        self.logits_NV = self.captioner.compute_logits(hidden_N1H[:, -1])

    def result(self, tokens: int) -> torch.Tensor:
        """Returns the generated tokens_RT."""
        return self.tokens_RT[:, :tokens]


def token_ids(tokens: Sequence[int], device: torch.device) -> torch.Tensor | None:
    """Returns the ids as a tensor on the device, or None if there are no ids."""
    return torch.tensor(list(tokens), device=device) if tokens else None


def token_table(tokens: Sequence[int], logits_NV: torch.Tensor) -> torch.Tensor:
    """Returns a boolean table over the vocabulary that is True for ``tokens``. Skips ids beyond the vocabulary."""
    known = [token for token in tokens if token < logits_NV.shape[-1]]
    table_V = torch.zeros(logits_NV.shape[-1], dtype=torch.bool)
    table_V[known] = True
    return table_V.to(logits_NV.device)
