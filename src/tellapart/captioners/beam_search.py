"""Batched beam search that matches transformers' ``generate`` token for token.

Pictures are dropped from the batch when their search is finished.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tellapart.captioners.decoder_state import Decoder, DecoderState
from tellapart.captioners.sampling import suppress, token_ids, token_table
from tellapart.models.decoding import Decoding

NEVER = -1.0e9  # log-probability of tokens and hypotheses that must not be selected, as in transformers


@dataclass
class Beams:
    """K hypotheses for each of B pictures: tokens_BKT, where T is the maximum length, and their scores, score_BK."""

    tokens_BKT: torch.Tensor
    score_BK: torch.Tensor

    def gather(self, place_BM: torch.Tensor) -> Beams:
        """Selects M hypotheses for each picture by index."""
        wide_BMT = place_BM[..., None].expand(-1, -1, self.tokens_BKT.shape[2])
        return Beams(self.tokens_BKT.gather(1, wide_BMT), self.score_BK.gather(1, place_BM))

    def grow(self, place: int, sum_BKV: torch.Tensor) -> tuple[Beams, torch.Tensor]:
        """Returns the K best hypotheses after adding one token, and from_BK, the index of the hypothesis that each of
        them extends.

        ``sum_BKV``: log-probabilities of the extended hypotheses.
        """
        K, V = sum_BKV.shape[1:]
        score_BK, flat_BK = sum_BKV.flatten(1).topk(K)
        from_BK, token_BK = flat_BK // V, flat_BK % V
        grown = Beams(self.gather(from_BK).tokens_BKT, score_BK)
        grown.tokens_BKT[:, :, place] = token_BK
        return grown, from_BK


class BeamSearch:
    """For each picture, keeps ``beams`` hypotheses and finds the best ``samples`` of them, best first.

    Finished hypotheses are ranked by log-probability divided by length (length penalty 1), where
    `Decoding.length_penalty_over` defines the length:

    - ``new``: the generated tokens including the end token, as in transformers since 4.36. Any stop token finishes a
      hypothesis.
    - ``all``: the prompt and the generated tokens without the end token, as in transformers 4.15. After any other stop
      token, the end token follows at no cost, because the papers' code forces it.

    A picture's search finishes when its best candidate is no better than its worst finished hypothesis. ``running_N``:
    True for the pictures in the batch that are still being searched. Tokens after a row's first stop token are
    undefined.
    """

    def __init__(self, captioner: Decoder, state: DecoderState, logits_NV: torch.Tensor, decoding: Decoding) -> None:
        self.captioner, self.state, self.logits_NV, self.decoding = captioner, state, logits_NV, decoding
        B, K, T, device = len(state), decoding.beams, decoding.max_tokens, logits_NV.device
        self.counts_all = decoding.length_penalty_over == "all"
        self.prompt = state.prompt_tokens if self.counts_all else 0
        ends, others = captioner.stop_tokens[:1], captioner.stop_tokens[1:]
        self.end_V = token_table(ends if self.counts_all else captioner.stop_tokens, logits_NV)
        self.forces_end = self.counts_all and bool(others)
        self.stop_V = token_table(others, logits_NV)
        self.suppressed = token_ids(captioner.suppressed_tokens, device)
        tokens_BKT = torch.full((B, K, T), captioner.stop_tokens[0], device=device)
        never_BK = torch.full((B, K), NEVER, device=device)
        self.finished, self.result_BKT = Beams(tokens_BKT, never_BK), tokens_BKT.clone()
        self.open = Beams(tokens_BKT, never_BK.clone())
        self.open.score_BK[:, 0] = 0.0
        self.picture_N = torch.arange(B, device=device)
        self.running_N = torch.ones(B, dtype=torch.bool, device=device)
        self.beams = 1  # all K hypotheses start from the same state
        self.row_NK = self.picture_N[:, None]

    def choose(self, place: int) -> None:
        """Extends each hypothesis by the token at position ``place``."""
        K, last = self.decoding.beams, place + 1 == self.decoding.max_tokens
        log_p_NV = suppress(self.logits_NV.float().log_softmax(-1), self.suppressed)
        if self.forces_end and place:
            stopped_N = self.stop_V[self.open.tokens_BKT[:, :, place - 1].flatten()]
            end_V = torch.where(self.end_V, 0.0, 2 * NEVER)
            log_p_NV = torch.where(stopped_N[:, None], end_V, log_p_NV)
        sum_BKV = log_p_NV.unflatten(0, (-1, self.beams)).expand(-1, K, -1) + self.open.score_BK[..., None]
        # A hypothesis finishes if it is among the K best overall and its picture is still being searched.
        best, _ = self.open.grow(place, sum_BKV)
        ended_BK = self.end_V[best.tokens_BKT[:, :, place]]
        length = self.prompt + place if self.counts_all else place + 1
        self._finish(best, ended_BK if self.counts_all else ended_BK | last, length)
        if last and not self.counts_all:
            return
        # The K best unfinished hypotheses continue.
        worst_B = self.finished.score_BK.amin(1)  # about `NEVER` if fewer than K hypotheses have finished
        self.open, from_BK = self.open.grow(place, sum_BKV.masked_fill_(self.end_V, 2 * NEVER))
        candidate_B = best.score_BK[:, 0] if self.counts_all else self.open.score_BK[:, 0]
        self.running_N = self.running_N & (candidate_B / max(length, 1) > worst_B)
        if last:
            self._finish(self.open, torch.ones_like(ended_BK), length + 1)
        first_N1 = torch.arange(len(self.picture_N), device=self.picture_N.device)[:, None] * self.beams
        self.row_NK = (first_N1 + (from_BK if self.beams > 1 else 0)).expand(-1, K)

    def _finish(self, hypotheses: Beams, ended_BK: torch.Tensor, length: int) -> None:
        """Adds the ``hypotheses`` that have just ended to the finished hypotheses, and keeps the K best of them all."""
        mean_BK = hypotheses.score_BK / max(length, 1) + ~self.running_N[:, None] * NEVER + ~ended_BK * NEVER
        merged = Beams(
            torch.cat([self.finished.tokens_BKT, hypotheses.tokens_BKT], dim=1),
            torch.cat([self.finished.score_BK, mean_BK], dim=1),
        )
        best_BK = merged.score_BK.topk(self.decoding.beams).indices
        self.finished = merged.gather(best_BK)
        self.result_BKT[self.picture_N] = self.finished.tokens_BKT

    def keep(self, kept_N: torch.Tensor) -> None:
        """Keeps only these pictures in the batch."""
        self.open, self.finished = (
            Beams(each.tokens_BKT[kept_N], each.score_BK[kept_N]) for each in (self.open, self.finished)
        )
        self.picture_N, self.running_N = self.picture_N[kept_N], self.running_N[kept_N]
        self.row_NK = self.row_NK[kept_N]

    def decode(self, place: int) -> None:
        """Computes the logits that follow the tokens at ``place``."""
        self.state, self.beams = self.state.select(self.row_NK.flatten()), self.decoding.beams
        token_N1 = self.open.tokens_BKT[:, :, place].reshape(-1, 1)
        self.logits_NV = self.captioner.compute_logits(self.captioner.step(self.state, token_N1)[:, -1])

    def result(self, tokens: int) -> torch.Tensor:
        """Returns the generated tokens_RT, best hypothesis first."""
        return self.result_BKT[:, : self.decoding.samples, :tokens].flatten(0, 1)
