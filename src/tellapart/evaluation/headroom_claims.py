"""The claims in a captioner's captions, with its confidence in each, and whether they are true."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

import torch

from tellapart.captioners import Captioner
from tellapart.captioners.generated_captions import without_gaps
from tellapart.language.english_words import FUNCTION_WORDS, WORD
from tellapart.language.token_spans import token_spans
from tellapart.models.decoding import Decoding
from tellapart.models.training_mode import in_mode
from tellapart.rewards.speaker import Speaker
from tellapart.scenes.claims import count_claims
from tellapart.scenes.parser import word_spans
from tellapart.scenes.stated_claims import stated_claims
from tellapart.types import Item, Rollout
from tellapart.utils.rng import ItemSeeds


@dataclass(frozen=True)
class ConfidentClaim:
    """A distinct claim about one picture.

    confidence: at most 0, in nats. The joint log-probability of the claim's words, averaged over the captions that make
        the claim, plus the logarithm of the share of captions that make it.
    """

    picture: int
    true: bool
    confidence: float


Pool = dict[tuple[int, Hashable], list[ConfidentClaim]]  # claims by (picture, statement)


def distinct(pool: Pool, captions: int) -> dict[tuple[int, Hashable], ConfidentClaim]:
    """Merges equal claims. captions: the number of captions per picture.

    The probability of a single word would not suffice: after one improbable word ("half"), the next word of a false
    claim is certain.
    """
    return {
        key: replace(own[0], confidence=sum(c.confidence for c in own) / len(own) + min(0.0, log(len(own) / captions)))
        for key, own in pool.items()
    }


def captions_with_log_probs(
    captioner: Captioner, rows: torch.Tensor, decoding: Decoding, seeds: ItemSeeds
) -> tuple[Rollout, torch.Tensor]:
    """Generates captions, and computes each token's log-probability at temperature 1."""
    with in_mode(captioner.model, False), torch.no_grad():
        with without_gaps(captioner):
            rollout = captioner.generate(rows, decoding, seeds)
        return rollout, Speaker(captioner).score(rows, rollout).cpu()


def claims_of(
    rollout: Rollout, log_p_RT: torch.Tensor, captioner: Captioner, items: Sequence[Item], on_scenes: bool
) -> Iterator[tuple[ConfidentClaim, Hashable]]:
    """Yields every claim in every caption, with the fact it states. For a false claim, the fact is replaced by the
    claim's words.
    """
    spans = token_spans(rollout.rows(), rollout.texts, captioner.tokenizer)
    for r, text in enumerate(rollout.texts):
        number = r // rollout.samples
        find = _scene_claims if on_scenes else _word_claims
        for parts, fact, true in find(text, items[number]):
            tokens = [
                t
                for t, (start, end) in enumerate(spans[r])
                if any(start < stop and first < end for first, stop in parts)
            ]
            if tokens:
                yield ConfidentClaim(number, true, float(log_p_RT[r, tokens].sum())), fact


def _scene_claims(text: str, item: Item) -> Iterator[tuple[list[tuple[int, int]], Hashable, bool]]:
    """Yields claims verified against the scene: the spans of the claim's words, the fact (or the words of a false
    claim), and whether the claim is true.
    """
    where = word_spans(text)
    for claim in stated_claims(text, item.truth):
        parts = [where[word] for word in claim.words]
        wording = ("false", *(text[start:end].lower() for start, end in parts))
        yield parts, claim.fact or wording, claim.fact is not None


def _word_claims(text: str, item: Item) -> Iterator[tuple[list[tuple[int, int]], Hashable, bool]]:
    """Yields each content word as a claim, which is true if a reference contains the word."""
    known = _reference_words(item)
    for word in _content_words(text):
        yield [word.span()], word.group().lower(), word.group().lower() in known


def _reference_words(item: Item) -> set[str]:
    return {word.group().lower() for text in item.references for word in _content_words(text)}


def _content_words(text: str) -> list[re.Match[str]]:
    return [word for word in WORD.finditer(text) if word.group().lower() not in FUNCTION_WORDS]


def fact_count(item: Item, on_scenes: bool) -> int:
    if not on_scenes:
        return len(_reference_words(item))

    return count_claims("", item.truth).attributes


def without_implied(
    known: Mapping[tuple[int, Hashable], ConfidentClaim], items: Sequence[Item]
) -> dict[tuple[int, Hashable], ConfidentClaim]:
    """Removes relations between objects that more confident relations already connect.

    A caption connects n objects with n-1 relations, but different captions may connect different pairs of objects.
    """
    kept = {}
    connected = {number: list(range(len(item.truth.facts))) for number, item in enumerate(items)}
    for (picture, fact), claim in sorted(known.items(), key=lambda entry: -entry[1].confidence):
        if isinstance(fact, tuple) and fact[0] == "relation":
            group, (one, other) = connected[picture], fact[1:]
            if group[one] == group[other]:
                continue
            old, new = group[other], group[one]
            connected[picture] = [new if number == old else number for number in group]
        kept[picture, fact] = claim
    return kept
