"""The beam searches of the papers' programs, transcribed step by step for one picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

LogProbabilities = Callable[[list[int]], torch.Tensor]  # of the next token, V numbers, after these generated tokens


def forced_end(next_V: LogProbabilities, stops: Sequence[int], end: int) -> LogProbabilities:
    """The logits processor of DiscriTune and No Detail Left Behind: after a token with "." only the end token."""

    def processed(tokens: list[int]) -> torch.Tensor:
        log_p_V = next_V(tokens)
        if tokens and tokens[-1] in stops:
            log_p_V = torch.full_like(log_p_V, -torch.inf)
            log_p_V[end] = 0.0
        return log_p_V

    return processed


def transformers_4_15(
    next_V: LogProbabilities, *, prompt: int, beams: int, samples: int, new_tokens: int, end: int
) -> list[list[int]]:
    """`BeamSearchScorer` and `BeamHypotheses` of transformers 4.15 with length penalty 1 and no early stopping.

    A hypothesis is divided by the length of its ids, prompt included, at the moment when it is added: its end token is
    not among them.
    """
    running: list[tuple[float, list[int]]] = [(0.0, [])] + [(-1e9, [])] * (beams - 1)
    finished: list[tuple[float, list[int]]] = []
    worst, done = 1e9, False

    def add(tokens: list[int], log_p: float) -> None:
        nonlocal worst
        score = log_p / (prompt + len(tokens)) if prompt + len(tokens) else log_p
        if len(finished) < beams or score > worst:
            finished.append((score, tokens))
            if len(finished) > beams:
                ranked = sorted(range(len(finished)), key=lambda i: finished[i][0])
                worst = finished[ranked[1]][0]
                del finished[ranked[0]]
            else:
                worst = min(score, worst)

    for place in range(new_tokens):
        sum_KV = torch.stack([score + next_V(tokens) for score, tokens in running])
        candidates = sum_KV.flatten().topk(2 * beams)
        following: list[tuple[float, list[int]]] = []
        for rank, (score, flat) in enumerate(zip(candidates.values.tolist(), candidates.indices.tolist(), strict=True)):
            beam, token = divmod(flat, sum_KV.shape[1])
            if token == end:
                if rank < beams:
                    add(running[beam][1], score)
            else:
                following.append((score, [*running[beam][1], token]))
            if len(following) == beams:
                break
        if len(finished) == beams:
            done = worst >= candidates.values[0].item() / max(prompt + place, 1)
        running = following
        if done:
            break
    if not done:
        for score, tokens in running:
            add(tokens, score)
    best = sorted(finished, key=lambda one: -one[0])
    return [tokens for _, tokens in best[:samples]]


def clipcap(next_V: LogProbabilities, *, beams: int, new_tokens: int, stops: Sequence[int]) -> list[int]:
    """`generate_beam` of ClipCap: all hypotheses, stopped or not, are ranked by the mean over generated tokens."""
    first = next_V([]).topk(beams)
    score_K, tokens_K = first.values, [[token] for token in first.indices.tolist()]
    length_K = torch.ones(beams, dtype=torch.float64)
    stopped_K = torch.tensor([tokens[-1] in stops for tokens in tokens_K])
    for _ in range(new_tokens - 1):
        if stopped_K.all():
            break
        log_p_KV = torch.stack([next_V(tokens) for tokens in tokens_K])
        log_p_KV[stopped_K] = -torch.inf
        log_p_KV[stopped_K, 0] = 0.0
        sum_KV = score_K[:, None] + log_p_KV
        length_K[~stopped_K] += 1
        mean_KV = sum_KV / length_K[:, None]
        best = mean_KV.flatten().topk(beams)
        from_K, token_K = best.indices // mean_KV.shape[1], best.indices % mean_KV.shape[1]
        length_K, stopped_K = length_K[from_K], stopped_K[from_K]
        tokens_K = [
            tokens_K[k] if stopped else [*tokens_K[k], token]
            for k, token, stopped in zip(from_K.tolist(), token_K.tolist(), stopped_K.tolist(), strict=True)
        ]
        score_K = best.values * length_K
        stopped_K = stopped_K | torch.tensor([tokens[-1] in stops for tokens in tokens_K])
    return tokens_K[int((score_K / length_K).argmax())]
