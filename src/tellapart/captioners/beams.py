"""Beam search after what was read of a picture once: token for token what transformers' ``generate`` gives.

There the picture is repeated for every beam, and keys and values of all its patches are copied at every token. Here
beams are rows of a `Prefix`, which may keep the picture's part once, and pictures that are finished leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tellapart.models.decoding import GOING, Decoding, Prefix, Scores, Waiting, generate_after

NEVER = -1.0e9  # the log-probability of what must not be chosen, as in transformers


@dataclass
class Beams:
    """K hypotheses of each of B pictures: tokens_BKT (T is the most tokens), and what they are ranked by."""

    tokens_BKT: torch.Tensor
    score_BK: torch.Tensor

    def chosen(self, place_BM: torch.Tensor) -> Beams:
        """M of the hypotheses of each picture, by their places."""
        wide_BMT = place_BM[..., None].expand(-1, -1, self.tokens_BKT.shape[2])
        return Beams(self.tokens_BKT.gather(1, wide_BMT), self.score_BK.gather(1, place_BM))

    def pictures(self, kept_N: torch.Tensor) -> Beams:
        return Beams(self.tokens_BKT[kept_N], self.score_BK[kept_N])


def captions_after(
    prefix: Prefix,
    scores: Scores,
    decoding: Decoding,
    ends: Sequence[int],
    uniform_RT: torch.Tensor | None = None,
    suppressed: Sequence[int] = (),
) -> torch.Tensor:
    """Captions R×T after each prefix as ``decoding`` says: `beams_after`, or `generate_after`."""
    if decoding.kind == "beam":
        return beams_after(prefix, scores, decoding, ends, suppressed)
    return generate_after(prefix, scores, decoding, ends, uniform_RT, suppressed)


def beams_after(
    prefix: Prefix, scores: Scores, decoding: Decoding, ends: Sequence[int], suppressed: Sequence[int] = ()
) -> torch.Tensor:
    """The best ``samples`` of ``beams`` captions of each picture, R×T, without ``suppressed`` tokens.

    Hypotheses end with one of ``ends`` and are ranked by their log-probability per token. A picture's search is over
    when its best open hypothesis is no better than its worst finished one. What stands after a row's first end means
    nothing.
    """
    B, K, T, device = len(prefix), decoding.beams, decoding.max_tokens, prefix.device
    candidates = max(2, 1 + len(ends)) * K  # so many that K of them have not ended
    end_E, suppressed_S = torch.tensor(list(ends), device=device), torch.tensor(list(suppressed), device=device).long()
    result_BKT = torch.full((B, K, T), ends[0], device=device)
    score_BK = torch.full((B, K), NEVER, device=device)
    running = Beams(result_BKT.clone(), score_BK.index_fill(1, torch.tensor([0], device=device), 0.0))
    finished, done_BK = Beams(result_BKT.clone(), score_BK), torch.zeros(B, K, dtype=torch.bool, device=device)
    picture_N, waiting = torch.arange(B, device=device), Waiting(device)
    open_N = torch.ones(B, dtype=torch.bool, device=device)
    output_N1H, beams = prefix.output_N1H, 1  # the K beginnings are one
    for place in range(T):
        log_p_NV = scores(output_N1H[:, -1]).float().log_softmax(-1)
        if len(suppressed):
            log_p_NV = log_p_NV.index_fill(-1, suppressed_S, -torch.inf)
        V = log_p_NV.shape[-1]
        sum_BKV = log_p_NV.unflatten(0, (-1, beams)).expand(-1, K, -1) + running.score_BK[..., None]
        score_BC, flat_BC = sum_BKV.flatten(1).topk(candidates)
        from_BC, token_BC = flat_BC // V, flat_BC % V
        grown = Beams(running.tokens_BKT, running.score_BK).chosen(from_BC)
        grown = Beams(grown.tokens_BKT, score_BC)
        grown.tokens_BKT[:, :, place] = token_BC
        ended_BC = torch.isin(token_BC, end_E) | (place + 1 == T)
        # What goes on: the K best that have not ended.
        going = Beams(grown.tokens_BKT, score_BC + ended_BC * NEVER)
        next_BK = going.score_BK.topk(K).indices
        running, from_BK = going.chosen(next_BK), from_BC.gather(1, next_BK)
        # What has ended counts where it was among the K best of all, and its picture is still searched.
        ended_BC[:, K:] = False
        mean_BC = score_BC / (place + 1) + ~open_N[:, None] * NEVER + ~ended_BC * NEVER
        merged = Beams(
            torch.cat([finished.tokens_BKT, grown.tokens_BKT], dim=1), torch.cat([finished.score_BK, mean_BC], dim=1)
        )
        best_BK = merged.score_BK.topk(K).indices
        finished, done_BK = merged.chosen(best_BK), torch.cat([done_BK, ended_BC], dim=1).gather(1, best_BK)
        worst_B = torch.where(done_BK, finished.score_BK.amin(1, keepdim=True), NEVER).amin(1)
        open_N = open_N & (running.score_BK[:, 0] / (place + 1) > worst_B)
        result_BKT[picture_N] = finished.tokens_BKT
        count = waiting.count(open_N)
        if not count or place + 1 == T:
            break
        row_NK = torch.arange(len(picture_N), device=device)[:, None] * beams + (from_BK if beams > 1 else 0)
        if count <= GOING * len(picture_N):
            kept_N = open_N.nonzero()[:, 0]
            running, finished, row_NK = running.pictures(kept_N), finished.pictures(kept_N), row_NK[kept_N]
            picture_N, open_N, done_BK = picture_N[kept_N], open_N[kept_N], done_BK[kept_N]
        prefix, beams = prefix.rows(row_NK.expand(-1, K).flatten()), K
        output_N1H = prefix.extend(running.tokens_BKT[:, :, place].reshape(-1, 1))
    return result_BKT[:, : decoding.samples, : place + 1].flatten(0, 1)
