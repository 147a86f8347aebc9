"""Estimates the confidence in a caption's claims: the share of samples that make a claim, and its log-probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tellapart.captioners.captioner import Captioner
from tellapart.language.claim_tuples import Claim, claims_of
from tellapart.language.distinct_claims import confidences
from tellapart.language.token_spans import spelled_spans, token_bytes
from tellapart.models.training_mode import in_mode
from tellapart.rewards.speaker import Speaker
from tellapart.utils.blocks import blocks_of

Tokens = Sequence[tuple[str, float]]  # text and log-probability in nats


@dataclass(frozen=True)
class Sample:
    """A sampled caption. ``tokens`` is empty if the model does not return log-probabilities."""

    text: str
    tokens: Tokens = ()


def claim_confidences(samples: Sequence[Sample], captions: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """Returns the distinct claims in ``captions``, in order, each with its confidence.

    claim: the claim's words, as extracted by `tellapart.language.claims`: an object; an object and its attribute; or a
        subject, a relation and an object.
    share: the share of samples that make the claim. This is the confidence q in ``eval``'s calibration metrics.
    log_prob: the log-probability, in nats, of the claim's words given the preceding text, averaged over the samples
        that make the claim. Absent if the samples have no tokens.
    """
    made = [claims_of(sample.text) for sample in samples]
    shares = confidences(made)
    log_probs: dict[Claim, list[float]] = {}
    for sample, own in zip(samples, made, strict=True):
        spans = _token_spans(sample)
        for claim, places in own.items() if spans else ():
            log_probs.setdefault(claim, []).append(_log_prob(sample, spans, places[0]))
    stated = dict.fromkeys(claim for text in captions for claim in claims_of(text))
    return tuple(
        {"kind": key[0], "claim": list(key[1]), "share": round(shares.get(key, 0.0), 6)}
        | ({"log_prob": round(sum(log_probs[key]) / len(log_probs[key]), 6)} if key in log_probs else {})
        for key in stated
    )


def _token_spans(sample: Sample) -> Sequence[tuple[int, int]]:
    """Returns each token's (start, end) in characters, or an empty sequence if the tokens do not spell the text."""
    pieces = [piece.encode("utf-8", "surrogateescape") for piece, _ in sample.tokens]
    return (spelled_spans(sample.text, pieces) if pieces else None) or ()


def _log_prob(sample: Sample, spans: Sequence[tuple[int, int]], place: tuple[int, int]) -> float:
    """Sums the log-probabilities of the tokens that overlap a span of the text."""
    start, end = place
    return sum(
        log_p for (first, last), (_, log_p) in zip(spans, sample.tokens, strict=True) if first < end and start < last
    )


def scored_samples(captioner: Captioner, visual: torch.Tensor, groups: Sequence[Sequence[str]]) -> list[list[Sample]]:
    """Returns each picture's samples with the captioner's log-probabilities at temperature 1.

    ``visual``: the captioner's input, with one row per picture.
    """
    texts = [text for group in groups for text in group]
    rollout = captioner.rollout_of(texts, len(groups[0]))
    with in_mode(captioner.model, False), torch.no_grad():
        log_p_RT = Speaker(captioner).score(visual, rollout).cpu()
    samples = []
    for text, row, valid, log_p in zip(texts, rollout.rows(), rollout.valid_RT.cpu(), log_p_RT, strict=True):
        pieces = token_bytes(row, text, captioner.tokenizer)
        spelled = [piece.decode("utf-8", "surrogateescape") for piece in pieces]
        samples.append(Sample(text, tuple(zip(spelled, log_p[valid].tolist(), strict=True))))
    return [*blocks_of(samples, len(groups[0]))]
