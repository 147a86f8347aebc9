"""Captions word by word from nothing but a captioner's scores, for models without a ``generate`` of their own.

The whole caption so far is read again at every word: right for any captioner, quick for none.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from tellapart.models.decoding import Decoding, next_token, to_rollout
from tellapart.types import Rollout
from tellapart.utils.rng import ItemSeeds


class NextToken(Protocol):
    """What writing word by word needs of a captioner: the scores of every next token."""

    tokenizer: Any

    @property
    def end(self) -> int: ...

    def logits(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor: ...


def generate_stepwise(
    captioner: NextToken, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None
) -> Rollout:
    """Greedy, sampled, or beam search (hypotheses ranked by log p per token), as ``decoding`` says; no gradient."""
    with torch.no_grad():
        if decoding.kind == "beam":
            tokens_RT = beam_search(captioner, visual, decoding)
        else:
            uniform_RT = decoding.uniform(len(visual), visual.device, seeds)
            tokens_RT = generate_rows(captioner, visual, decoding, uniform_RT)
    return to_rollout(tokens_RT, captioner.tokenizer, [captioner.end], decoding.samples)


def next_scores(captioner: NextToken, visual: torch.Tensor, tokens_RT: torch.Tensor) -> torch.Tensor:
    """log p of every word after ``tokens``, R×V; R is a multiple of the pictures."""
    read_RT = torch.cat([tokens_RT, tokens_RT.new_full((len(tokens_RT), 1), captioner.end)], dim=1)
    scores_RTV = captioner.logits(visual, read_RT, torch.ones_like(read_RT, dtype=torch.bool))
    return scores_RTV[:, -1].float()


def generate_rows(
    captioner: NextToken, visual: torch.Tensor, decoding: Decoding, uniform_RT: torch.Tensor | None
) -> torch.Tensor:
    """One caption a row: the likeliest word each time, or the one that is drawn with ``uniform_RT``."""
    tokens_RT = torch.empty(len(visual) * decoding.samples, 0, dtype=torch.long, device=visual.device)
    done_R = torch.zeros(len(tokens_RT), dtype=torch.bool, device=visual.device)
    while tokens_RT.shape[1] < decoding.max_tokens and not bool(done_R.all()):
        scores_RV = next_scores(captioner, visual, tokens_RT)
        uniform_R = None if uniform_RT is None else uniform_RT[:, tokens_RT.shape[1]]
        word_R = next_token(scores_RV, decoding, uniform_R).masked_fill(done_R, captioner.end)
        tokens_RT, done_R = torch.cat([tokens_RT, word_R[:, None]], dim=1), done_R | (word_R == captioner.end)
    return tokens_RT


def beam_search(captioner: NextToken, visual: torch.Tensor, decoding: Decoding) -> torch.Tensor:
    """The best ``samples`` of ``beams`` hypotheses of each picture, best first."""
    B, K, end = len(visual), decoding.beams, captioner.end
    tokens_BKT = torch.empty(B, K, 0, dtype=torch.long, device=visual.device)
    sum_BK = torch.full((B, K), -torch.inf, device=visual.device)
    sum_BK[:, 0] = 0.0  # the K beginnings are one
    done_BK = torch.zeros_like(sum_BK, dtype=torch.bool)
    for _ in range(decoding.max_tokens):
        log_p_BKV = next_scores(captioner, visual, tokens_BKT.flatten(0, 1)).log_softmax(-1).unflatten(0, (B, K))
        over_V = torch.full_like(log_p_BKV[0, 0], -torch.inf)
        over_V[end] = 0.0  # a caption that has ended stays as it is
        sum_BKV = sum_BK[..., None] + torch.where(done_BK[..., None], over_V, log_p_BKV)
        V = sum_BKV.shape[-1]
        sum_BK, place_BK = sum_BKV.flatten(1).topk(K, dim=1)
        from_BK, word_BK = place_BK // V, place_BK % V
        before_BKT = tokens_BKT.gather(1, from_BK[..., None].expand(-1, -1, tokens_BKT.shape[2]))
        tokens_BKT = torch.cat([before_BKT, word_BK[..., None]], dim=2)
        done_BK = done_BK.gather(1, from_BK) | (word_BK == end)
        if bool(done_BK.all()):
            break
    ended_BKT = (tokens_BKT == end).long()
    length_BK = (ended_BKT.cumsum(2) - ended_BKT == 0).sum(2)  # up to and with the first end
    best_BS = (sum_BK / length_BK).topk(decoding.samples, dim=1).indices
    return tokens_BKT.gather(1, best_BS[..., None].expand(-1, -1, tokens_BKT.shape[2])).flatten(0, 1)
