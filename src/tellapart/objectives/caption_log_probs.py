"""Log-probabilities of captions and their tokens, with length normalization."""

from __future__ import annotations

import torch

from tellapart.types import Rollout

MANY_LOGITS = 2**22  # above this size, use a fused operation, which needs less memory but sums in a different order


def token_log_probs(logits_RTV: torch.Tensor, tokens_RT: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Computes the log-probability of each token, R×T, in nats, from logits divided by ``temperature``."""
    logits_RTV = logits_RTV if logits_RTV.dtype == torch.float64 else logits_RTV.float()
    logits_RTV = logits_RTV if temperature == 1.0 else logits_RTV / temperature
    if logits_RTV.numel() < MANY_LOGITS:
        return logits_RTV.gather(-1, tokens_RT[..., None]).squeeze(-1) - logits_RTV.logsumexp(-1)
    nats_N = torch.nn.functional.cross_entropy(logits_RTV.flatten(0, -2), tokens_RT.flatten(), reduction="none")
    return -nats_N.view_as(tokens_RT)


def caption_log_probs(
    log_probs_RT: torch.Tensor,
    rollout: Rollout,
    end: int,
    length_normalization: str,
    max_tokens: int | None = None,
) -> torch.Tensor:
    """Computes each caption's log-probability, R, from the log-probabilities of its tokens.

    ``length+1``: the sum over words, without the end token, divided by the number of words + 1, or by ``max_tokens``,
    the maximum caption length, if that is smaller (a truncated caption has no end token to count). ``words``: the same
    sum, divided by the number of words. ``length``: the sum including the end token, divided by the number of tokens.
    ``none``: the sum including the end token. For an empty caption, the log-probability of its end token is used.
    """
    total_R = (log_probs_RT * counted_tokens(rollout, end, length_normalization)).sum(1)
    size_R = caption_sizes(rollout, end, length_normalization, max_tokens)
    return total_R if size_R is None else total_R / size_R


def caption_sizes(
    rollout: Rollout, end: int, length_normalization: str, max_tokens: int | None = None
) -> torch.Tensor | None:
    """Returns the divisor of each caption's log-probability, R, or None for no division (see `caption_log_probs`)."""
    if length_normalization == "none":
        return None
    if length_normalization == "length":
        return rollout.valid_RT.sum(1).clamp(min=1)
    words_R = (rollout.valid_RT & (rollout.tokens_RT != end)).sum(1)
    if length_normalization == "words":
        return words_R.clamp(min=1)
    return words_R + 1 if max_tokens is None else (words_R + 1).clamp(max=max_tokens)


def counted_tokens(rollout: Rollout, end: int, length_normalization: str) -> torch.Tensor:
    """Returns a mask R×T of the tokens whose log-probabilities `caption_log_probs` sums."""
    if length_normalization in ("length", "none"):
        return rollout.valid_RT
    words_RT = rollout.valid_RT & (rollout.tokens_RT != end)
    # An empty caption has no words, so count its end token instead; this lets the captioner unlearn empty captions.
    return torch.where(words_RT.any(1, keepdim=True), words_RT, rollout.valid_RT)


def token_weights(rollout: Rollout, end: int, length_normalization: str, max_tokens: int | None = None) -> torch.Tensor:
    """Returns weight_RT (float64), each token's weight in its caption's log-probability (see `caption_log_probs`)."""
    counted_RT = counted_tokens(rollout, end, length_normalization).double()
    size_R = caption_sizes(rollout, end, length_normalization, max_tokens)
    return counted_RT if size_R is None else counted_RT / size_R[:, None]
